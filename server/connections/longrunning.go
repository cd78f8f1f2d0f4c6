package connections

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/streaming/pkg/httpstream"
)

// never is later than any request. To replace a deadline, net/http first stops its timer, which fails if the stream has ended. With
// no deadline, it starts a timer even then, which keeps the whole server in memory until it fires.
var never = time.Now().AddDate(100, 0, 0)

// LongRunning removes the deadlines set by Configure from long-running requests. It ends a watch whose client reads nothing for
// writeTimeout. Other long-running requests are streams for people, who may pause. It needs the request's RequestInfo.
func LongRunning(next http.Handler, longRunning request.LongRunningRequestCheck, writeTimeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if of(r) == nil || !ok || !longRunning(r, info) {
			next.ServeHTTP(w, r)
			return
		}
		// Network connections support both.
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{})
		_ = control.SetWriteDeadline(never)
		defer func() { // for the rest of the buffers
			if r.Context().Err() == nil {
				_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
			}
		}()
		if !info.IsResourceRequest { // net/http/pprof refuses profiles that take longer than the server's deadlines
			r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, nil))
		}
		flusher, ok := w.(responsewriter.CloseNotifierFlusher)
		if ok && info.Verb == "watch" && !httpstream.IsUpgradeRequest(r) { // WebSockets
			limited := newTimeoutWriter(w, flusher, writeTimeout)
			defer limited.timer.Stop()
			w = limited
		}
		next.ServeHTTP(w, r)
	})
}

// timeoutWriter ends the response when a write takes longer than writeTimeout. A deadline per write would cost a message to the
// connection's goroutine on HTTP/2.
type timeoutWriter struct {
	http.ResponseWriter
	http.CloseNotifier
	flusher      http.Flusher
	writeTimeout time.Duration
	timer        *time.Timer
}

func newTimeoutWriter(w http.ResponseWriter, f responsewriter.CloseNotifierFlusher, writeTimeout time.Duration) *timeoutWriter {
	i := &timeoutWriter{ResponseWriter: w, CloseNotifier: f, flusher: f, writeTimeout: writeTimeout}
	i.timer = time.AfterFunc(writeTimeout, func() {
		// A deadline in the past fails the current write and those that follow.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
	})
	i.timer.Stop()
	return i
}

func (i *timeoutWriter) Write(data []byte) (int, error) {
	i.timer.Reset(i.writeTimeout)
	defer i.timer.Stop()
	return i.ResponseWriter.Write(data)
}

func (i *timeoutWriter) Flush() {
	i.timer.Reset(i.writeTimeout)
	defer i.timer.Stop()
	i.flusher.Flush()
}

// Unwrap lets http.ResponseController reach the underlying writer.
func (i *timeoutWriter) Unwrap() http.ResponseWriter { return i.ResponseWriter }
