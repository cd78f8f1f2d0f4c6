package connections

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/sqube/sqube/server/watchtask"
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
		account.secure()
		ctx := r.Context()
		if ctx.Err() != nil { // cancelled before it began
			account.cancelled()
			return
		}
		defer watchtask.AtEnd(r, func() {
			if ctx.Err() != nil {
				account.cancelled()
			}
		})
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
		defer watchtask.AtEnd(r, slot.release)
		answer := &answer{ResponseWriter: w, account: account}
		account.waits.add(0, 1)
		defer watchtask.AtEnd(r, answer.begin)
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(answer), r.WithContext(context.WithValue(ctx, slotKey{}, slot)))
		watchtask.AtEnd(r, func() {
			// A response that is not read keeps the slot. Over HTTP/1.1 the next request comes only after it is read.
			if flusher, ok := w.(http.Flusher); ok && r.ProtoMajor == 2 && !account.known.Load() {
				flusher.Flush()
			}
		})
	})
}

// answer notices the beginning of a response. From then on, the client has to read.
type answer struct {
	http.ResponseWriter
	account *connection
	begun   atomic.Bool
}

func (a *answer) begin() {
	if !a.begun.Swap(true) {
		a.account.waits.add(0, -1)
	}
}

func (a *answer) WriteHeader(code int) {
	a.begin()
	a.ResponseWriter.WriteHeader(code)
}

func (a *answer) Write(p []byte) (int, error) {
	if !a.begun.Load() {
		a.begin()
	}
	return a.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the underlying writer.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

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
