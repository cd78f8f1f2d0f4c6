package connections

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sqube/sqube/server/watchtask"
)

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
		ctx := r.Context()
		defer watchtask.AtEnd(r, func() { // for the rest of the buffers
			if ctx.Err() == nil {
				_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
			}
		})
		if !info.IsResourceRequest { // net/http/pprof refuses profiles that take longer than the server's deadlines
			r = r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, nil))
		}
		flusher, ok := w.(responsewriter.CloseNotifierFlusher)
		if ok && info.Verb == "watch" && !httpstream.IsUpgradeRequest(r) { // WebSockets
			limited := newTimeoutWriter(w, flusher, writeTimeout)
			defer watchtask.AtEnd(r, func() { limited.timer.Stop() })
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
	t := &timeoutWriter{ResponseWriter: w, CloseNotifier: f, flusher: f, writeTimeout: writeTimeout}
	t.timer = time.AfterFunc(writeTimeout, func() {
		// A deadline in the past fails the current write and those that follow.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
	})
	t.timer.Stop()
	return t
}

func (t *timeoutWriter) Write(data []byte) (int, error) {
	t.timer.Reset(t.writeTimeout)
	defer t.timer.Stop()
	return t.ResponseWriter.Write(data)
}

func (t *timeoutWriter) Flush() {
	t.timer.Reset(t.writeTimeout)
	defer t.timer.Stop()
	t.flusher.Flush()
}

// Unwrap lets http.ResponseController reach the underlying writer.
func (t *timeoutWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }
