package connections

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/streaming/pkg/httpstream"
)

// Admit rejects requests on unauthenticated connections when too many run, and closes connections whose clients cancel too
// many requests. It should be one of the first filters.
func (c *Connections) Admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account := of(r)
		if account == nil {
			next.ServeHTTP(w, r)
			return
		}
		if r.Context().Err() != nil { // cancelled before it began
			account.cancelled()
			return
		}
		defer func() {
			if r.Context().Err() != nil {
				account.cancelled()
			}
		}()
		if account.known.Load() {
			next.ServeHTTP(w, r)
			return
		}
		slot := c.acquireSlot(account)
		if slot == nil {
			account.cancelled()
			// Without a body, for which an HTTP/2 client may leave no window.
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		defer slot.release()
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), slotKey{}, slot)))
		// A response that is not read keeps the slot. Over HTTP/1.1 the next request comes only after it is read.
		if flusher, ok := w.(http.Flusher); ok && r.ProtoMajor == 2 && !account.known.Load() {
			flusher.Flush()
		}
	})
}

type slotKey struct{}

// slot is held by a request until its client is authenticated.
type slot struct{ release func() }

// acquireSlot returns nil if the request may not run now. The first request on a connection always may, so that no client can
// keep another from authenticating.
func (c *Connections) acquireSlot(account *connection) *slot {
	first := account.running.Add(1) == 1
	if !first && c.unknownRequests.Add(1) > maxUnknownRequests {
		c.unknownRequests.Add(-1)
		account.running.Add(-1)
		return nil
	}
	return &slot{sync.OnceFunc(func() {
		account.running.Add(-1)
		if !first {
			c.unknownRequests.Add(-1)
		}
	})}
}

// Authenticated records which connections have authenticated clients. It must come right after authentication.
func (c *Connections) Authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if account := of(r); account != nil && !anonymous(r.Context()) {
			c.authenticated(account)
			if slot, ok := r.Context().Value(slotKey{}).(*slot); ok {
				slot.release()
			}
		}
		next.ServeHTTP(w, r)
	})
}

func anonymous(ctx context.Context) bool {
	client, ok := request.UserFrom(ctx)
	return !ok || client.GetName() == user.Anonymous || slices.Contains(client.GetGroups(), user.AllUnauthenticated)
}

// UntilDone wraps next in a filter that may return before next does, like upstream's timeout filter. If the client is gone, the
// request lasts until next returns: Go's HTTP/2 server counts it as running until then. A request that timed out ends with its
// response, unless its connection has too many such requests.
func UntilDone(filter func(http.Handler) http.Handler, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		done := make(chan struct{})
		defer wait(r, done) // also if filter panics to abort the response
		filter(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(done)
			next.ServeHTTP(w, r)
		})).ServeHTTP(w, r)
	})
}

// wait returns when done is closed, or at once if the handler may outlive its request.
func wait(r *http.Request, done <-chan struct{}) {
	select {
	case <-done:
		return
	default:
	}
	account := of(r)
	if account == nil || !errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		<-done
		return
	}
	if account.timedOut.Add(1) > maxTimedOut {
		<-done
		account.timedOut.Add(-1)
		return
	}
	go func() {
		<-done
		account.timedOut.Add(-1)
	}()
}

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
