package connections

import (
	"container/list"
	"context"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	"k8s.io/component-base/metrics"
)

const (
	// DefaultMaxStreams is how many requests one HTTP/2 connection may carry at once, like kube-apiserver. Go's server queues
	// four times as many whose streams were reset before it began them, and closes the connection if there are more.
	DefaultMaxStreams = 100

	// ReadHeaderTimeout is how long a client may take to send the header of a request, like kube-apiserver.
	ReadHeaderTimeout = 32 * time.Second
	idleTimeout       = 90 * time.Second // as kube-apiserver
	// lingerTimeout is how much longer than the request's timeout a connection may take: time to send the timeout error.
	lingerTimeout = 5 * time.Second

	// Each connection, even an unauthenticated one, holds an unread body, a frame and a header in memory.
	maxHeaderBytes   = 256 << 10
	maxFrameBytes    = 16 << 10 // a TLS record has no more
	maxBufferedBytes = 256 << 10

	// maxIdle limits the idle connections of authenticated clients: to this number, or to a quarter of the limit of open files.
	maxIdle = 4000
	// maxUnknownRequests is how many requests may run on unauthenticated connections at once, beyond one on each.
	maxUnknownRequests = 500
	// maxTimedOut is how many handlers of one connection may still run after their request has timed out.
	maxTimedOut = 100
)

// These limit how often a client may cancel requests, or have them refused, before its connection is closed. Controllers cancel all
// watches at once when they stop, and clients with short timeouts cancel request by request.
func newKnownCancels() *rate.Limiter   { return rate.NewLimiter(200, 5000) }
func newUnknownCancels() *rate.Limiter { return rate.NewLimiter(10, 100) }

// Closed counts the connections that were closed because of what their clients did, by reason; its help lists the reasons.
var Closed = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "sqube_connections_closed_total",
	Help:           "Connections that the server closed because of what their clients did, by reason: too many cancelled or refused requests (cancels), an unauthenticated client that is silent while others wait (unauthenticated), too many idle connections (idle), a watch whose client does not read its connection (slow).",
	StabilityLevel: metrics.ALPHA,
}, []string{"reason"})

// Reasons are all reasons of Closed.
var Reasons = []string{cancels, unauthenticated, idle, Slow}

const (
	cancels         = "cancels"
	unauthenticated = "unauthenticated"
	idle            = "idle"
	// Slow means that a client does not read the events of a watch.
	Slow = "slow"
)

// Connections tracks the connections of one http.Server.
type Connections struct {
	mu sync.Mutex
	// Connections on which no client has authenticated, oldest first: accepted ones, which have no place, and those that have one.
	accepted, places *list.List
	// queue are the connections that wait for a place, a part of accepted.
	queue *list.List
	// idle are the idle connections of authenticated clients, longest idle first.
	idle *list.List

	toSpeak, toAuthenticate patience // with accepted connections, and with places
	retrying                bool     // a timer runs for makePlaces
	// left has a value after a connection is no longer in accepted or places.
	left chan struct{}

	// active is how many connections have requests. idled is closed when there are none.
	active int
	idled  chan struct{}

	maxUnknown, maxPlaces, maxIdle int
	unknownRequests                atomic.Int32 // of maxUnknownRequests
	turns                          turns
}

// New returns an empty Connections.
func New() *Connections {
	c := &Connections{
		accepted: list.New(), places: list.New(), queue: list.New(), idle: list.New(), left: make(chan struct{}, 1),
		maxUnknown: maxUnknown, maxPlaces: maxPlaces, maxIdle: maxIdle, turns: turns{free: runtime.GOMAXPROCS(0)},
		toSpeak: patience{limit: maxPatience}, toAuthenticate: patience{limit: maxPatience},
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		c.maxUnknown = int(min(maxUnknown, files.Cur/2))
		c.maxIdle = int(min(maxIdle, files.Cur/4))
	}
	return c
}

// Configure sets the limits and hooks of the server. requestTimeout is the limit for requests that are not long-running.
func (c *Connections) Configure(server *http.Server, maxStreams int, requestTimeout time.Duration) {
	server.ReadHeaderTimeout = min(ReadHeaderTimeout, requestTimeout)
	server.ReadTimeout = requestTimeout + lingerTimeout
	server.WriteTimeout = requestTimeout + lingerTimeout
	server.IdleTimeout = idleTimeout
	server.MaxHeaderBytes = maxHeaderBytes
	server.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams:          maxStreams,
		MaxReadFrameSize:              maxFrameBytes,
		MaxReceiveBufferPerConnection: maxBufferedBytes,
		MaxReceiveBufferPerStream:     maxBufferedBytes,
		WriteByteTimeout:              requestTimeout,
	}
	server.ConnContext = c.opened
	server.ConnState = c.changed
}

// opened puts the connection into the context of its requests.
func (c *Connections) opened(ctx context.Context, conn net.Conn) context.Context {
	if account := accountOf(conn); account != nil {
		return context.WithValue(ctx, connectionKey{}, account)
	}
	return ctx
}

// WaitIdle waits until no connection has a request, or ctx ends. If an HTTP/2 connection is closed during a request, net/http
// restarts its idle timer, which keeps the whole server in memory for the idle timeout.
func (c *Connections) WaitIdle(ctx context.Context) {
	c.mu.Lock()
	if c.active == 0 {
		c.mu.Unlock()
		return
	}
	if c.idled == nil {
		c.idled = make(chan struct{})
	}
	idled := c.idled
	c.mu.Unlock()
	select {
	case <-idled:
	case <-ctx.Done():
	}
}

// changed tracks the state of a connection. If too many are idle, the one that has been idle longest is closed; its client opens
// a new one when it needs one.
func (c *Connections) changed(conn net.Conn, state http.ConnState) {
	account := accountOf(conn)
	if account == nil {
		return
	}
	if state == http.StateActive || state == http.StateIdle {
		account.secure()
	}
	if oldest := c.state(account, state); oldest != nil {
		oldest.drop(idle)
	}
}

// state records the state of a connection. If too many are idle, it returns the one that has been idle longest and from which no request has
// arrived meanwhile; otherwise nil.
func (c *Connections) state(account *connection, state http.ConnState) (oldest *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if account.idle != nil {
		c.idle.Remove(account.idle)
		account.idle = nil
	}
	if active := state == http.StateActive; active != account.active {
		account.active = active
		if active {
			c.active++
		} else if c.active--; c.active == 0 && c.idled != nil {
			close(c.idled)
			c.idled = nil
		}
	}
	if state != http.StateIdle || account.closed || !account.known.Load() {
		return nil
	}
	account.idle = c.idle.PushBack(account)
	if c.idle.Len() <= c.maxIdle {
		return nil
	}
	for e := c.idle.Front(); e != nil; e = e.Next() {
		if oldest = e.Value.(*connection); !unread(oldest.Conn) {
			c.idle.Remove(e)
			oldest.idle = nil
			return oldest
		}
	}
	return nil
}

type connectionKey struct{}

// Close closes the connection of the request with that context, and counts the reason.
func Close(ctx context.Context, reason string) {
	if account, ok := ctx.Value(connectionKey{}).(*connection); ok {
		account.drop(reason)
	}
}

// of returns the connection of the request; nil for in-process requests.
func of(r *http.Request) *connection {
	account, _ := r.Context().Value(connectionKey{}).(*connection)
	return account
}
