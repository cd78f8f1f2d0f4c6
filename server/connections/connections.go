package connections

import (
	"container/list"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
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

	// maxUnknown limits the connections on which no client has authenticated: to this number, or to half of the limit of open
	// files if that is less.
	maxUnknown = 1000
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
	Help:           "Connections that the server closed because of what their clients did, by reason: too many cancelled or refused requests (cancels), too many connections without an authenticated client (unauthenticated), too many idle connections (idle), a watch whose client does not read its connection (slow).",
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
	mu   sync.Mutex
	open map[net.Conn]*connection
	// unknown are the connections on which no client has authenticated, oldest first. The oldest is closed when a new one would
	// exceed maxUnknown: clients with credentials authenticate soon.
	unknown *list.List
	// idle are the idle connections of authenticated clients, longest idle first.
	idle *list.List

	// active is how many connections have requests. idled is closed when there are none.
	active int
	idled  chan struct{}

	maxUnknown, maxIdle int
	unknownRequests     atomic.Int32 // of maxUnknownRequests
}

type connection struct {
	net      net.Conn
	unknown  *list.Element // of Connections.unknown, at first
	idle     *list.Element // of Connections.idle, or nil
	active   bool          // has requests
	known    atomic.Bool   // a client has authenticated
	running  atomic.Int32  // requests that have not been authenticated yet
	timedOut atomic.Int32  // of maxTimedOut
	cancels  atomic.Pointer[rate.Limiter]
}

// New returns an empty Connections.
func New() *Connections {
	c := &Connections{open: map[net.Conn]*connection{}, unknown: list.New(), idle: list.New(), maxUnknown: maxUnknown, maxIdle: maxIdle}
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

// opened adds a connection, and puts it into the context of its requests.
func (c *Connections) opened(ctx context.Context, conn net.Conn) context.Context {
	account := &connection{net: conn}
	account.cancels.Store(newUnknownCancels())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unknown.Len() >= c.maxUnknown {
		c.unknown.Remove(c.unknown.Front()).(*connection).close(unauthenticated)
	}
	c.open[conn], account.unknown = account, c.unknown.PushBack(account)
	return context.WithValue(ctx, connectionKey{}, account)
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
	c.mu.Lock()
	defer c.mu.Unlock()
	account, ok := c.open[conn]
	if !ok {
		return
	}
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
	switch state {
	case http.StateIdle:
		if account.known.Load() {
			account.idle = c.idle.PushBack(account)
		}
		if c.idle.Len() > c.maxIdle {
			oldest := c.idle.Remove(c.idle.Front()).(*connection)
			oldest.idle = nil
			oldest.close(idle)
		}
	case http.StateClosed, http.StateHijacked:
		c.unknown.Remove(account.unknown) // no effect if it has been removed
		delete(c.open, conn)
	}
}

// authenticated records that a client has authenticated.
func (c *Connections) authenticated(account *connection) {
	if account.known.Swap(true) {
		return
	}
	account.cancels.Store(newKnownCancels())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unknown.Remove(account.unknown)
}

// cancelled records that a request was cancelled or refused.
func (a *connection) cancelled() {
	if !a.cancels.Load().Allow() {
		a.close(cancels)
	}
}

// close closes the connection at once, without TLS or HTTP messages, which the client may not read.
func (a *connection) close(reason string) {
	conn := a.net
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if err := conn.Close(); err != nil {
		return // already closed
	}
	Closed.WithLabelValues(reason).Inc()
	slog.Debug("closed a connection", "client", conn.RemoteAddr().String(), "reason", reason)
}

type connectionKey struct{}

// Close closes the connection of the request with that context, and counts the reason.
func Close(ctx context.Context, reason string) {
	if account, ok := ctx.Value(connectionKey{}).(*connection); ok {
		account.close(reason)
	}
}

// of returns the connection of the request; nil for in-process requests.
func of(r *http.Request) *connection {
	account, _ := r.Context().Value(connectionKey{}).(*connection)
	return account
}
