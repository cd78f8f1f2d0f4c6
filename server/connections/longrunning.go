package connections

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/streaming/pkg/httpstream"
)

// LongRunning lifts the deadlines that Configure sets from requests that may last. A watch whose client does not take what
// is sent for as long as writeTimeout is ended: the other long-running requests are streams that people read, and may leave
// standing. It needs to know the request's verb.
func LongRunning(next http.Handler, longRunning request.LongRunningRequestCheck, writeTimeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if of(r) == nil || !ok || !longRunning(r, info) {
			next.ServeHTTP(w, r)
			return
		}
		// Every ResponseWriter of a network can.
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Time{})
		_ = control.SetWriteDeadline(time.Time{})
		defer func() { // what is left in buffers
			if r.Context().Err() == nil {
				_ = control.SetWriteDeadline(time.Now().Add(writeTimeout))
			}
		}()
		if !info.IsResourceRequest { // a profile, which would be refused if it takes longer than the server's deadlines
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

// timeoutWriter ends the response when a write takes longer than writeTimeout. Setting a deadline for each write would cost
// HTTP/2 a message to the connection's goroutine.
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
		// A deadline in the past ends a write that is under way, and fails those that follow.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
	})
	i.timer.Stop()
	return i
}

// Write implements http.ResponseWriter.
func (i *timeoutWriter) Write(data []byte) (int, error) {
	i.timer.Reset(i.writeTimeout)
	defer i.timer.Stop()
	return i.ResponseWriter.Write(data)
}

// Flush implements http.Flusher.
func (i *timeoutWriter) Flush() {
	i.timer.Reset(i.writeTimeout)
	defer i.timer.Stop()
	i.flusher.Flush()
}

// Unwrap lets http.ResponseController find what the writer can do.
func (i *timeoutWriter) Unwrap() http.ResponseWriter { return i.ResponseWriter }
