package server

import (
	"context"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/sqube/sqube/server/connections"
	"github.com/sqube/sqube/server/watchtask"
	"github.com/sqube/sqube/sqlstore"
)

// withSlowClientDetection lets the store see how fast the client of a watch reads, and end the response if it is too slow.
func withSlowClientDetection(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isWatch(r) {
			next.ServeHTTP(w, r)
			return
		}
		response := &watchResponse{ResponseWriter: w, request: r.Context(), over: make(chan struct{})}
		response.client.Disconnect = response.cut
		defer watchtask.AtEnd(r, response.end)
		r = r.WithContext(sqlstore.WithClient(r.Context(), &response.client))
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(response), r)
	})
}

type watchResponse struct {
	http.ResponseWriter
	client sqlstore.Client

	request context.Context

	mu   sync.Mutex // held while the response is used
	over chan struct{}
}

// writeChunk is how many bytes are written at once, so that a slow client makes visible progress on a large event.
const writeChunk = 64 << 10

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

// Unwrap lets http.ResponseController reach the underlying writer.
func (w *watchResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// cutTimeout is how long ending a stream may take.
const cutTimeout = time.Second

// cut ends the response: a deadline in the past fails the current write and those that follow. Over HTTP/2 this sends a frame,
// so if the client does not read its connection at all, the connection is closed. In-process clients have no deadline; they
// read everything.
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

// end marks the response as no longer usable.
func (w *watchResponse) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.over)
}
