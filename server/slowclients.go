package server

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/sqube/sqube/server/connections"
	"github.com/sqube/sqube/sqlstore"
)

// withSlowClientDetection lets the store see how fast the client of a watch takes what it is
// sent, and end the response of one that is too slow.
func withSlowClientDetection(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || info.Verb != "watch" {
			next.ServeHTTP(w, r)
			return
		}
		response := &watchResponse{ResponseWriter: w, request: r, over: make(chan struct{})}
		response.client.Disconnect = response.cut
		defer response.end()
		r = r.WithContext(sqlstore.WithClient(r.Context(), &response.client))
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(response), r)
	})
}

// watchResponse is the response to a watch.
type watchResponse struct {
	http.ResponseWriter
	client sqlstore.Client

	request *http.Request

	mu   sync.Mutex // held while the response is touched
	over chan struct{}
}

// writeChunk is how much is written at once, so that a slow client is seen to take
// a large event.
const writeChunk = 64 << 10

// Write implements http.ResponseWriter.
func (w *watchResponse) Write(data []byte) (written int, err error) {
	for len(data) > writeChunk && err == nil {
		var n int
		n, err = w.ResponseWriter.Write(data[:writeChunk])
		written += n
		data = data[n:]
		w.client.Advance()
	}
	if err != nil {
		return written, err
	}
	n, err := w.ResponseWriter.Write(data)
	return written + n, err
}

// Unwrap lets http.ResponseController find what the writer can do.
func (w *watchResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// cutTimeout is how long it may take to end a stream.
const cutTimeout = time.Second

// cut ends the response: a deadline in the past fails a write that is under
// way, and those that follow. Over HTTP/2 that takes a frame, so a client that does
// not read its connection at all loses that. A client in this process has no
// deadline; it takes what it is sent.
func (w *watchResponse) cut() {
	w.mu.Lock()
	select {
	case <-w.over:
	default:
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
	}
	w.mu.Unlock()
	select {
	case <-w.over:
	case <-time.After(cutTimeout):
		connections.Close(w.request, connections.Slow)
	}
}

// end says that the response may no longer be touched.
func (w *watchResponse) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.over)
}
