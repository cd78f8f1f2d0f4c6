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
	// DefaultMaxStreams is how many requests one HTTP/2 connection carries at once, like kube-apiserver. Go's server
	// queues four times as many whose streams were reset before they were begun, and closes the connection after that.
	DefaultMaxStreams = 100

	// ReadHeaderTimeout is how long a client may take to send the header of a request, like kube-apiserver.
	ReadHeaderTimeout = 32 * time.Second
	idleTimeout       = 90 * time.Second // as kube-apiserver
	// lingerTimeout is how much longer than a request a connection may take to pass it on: time for the answer that the
	// request took too long.
	lingerTimeout = 5 * time.Second

	// An unread body, a frame and a header are held in memory for each connection, which need not belong to anyone known.
	maxHeaderBytes   = 256 << 10
	maxFrameBytes    = 16 << 10 // a TLS record has no more
	maxBufferedBytes = 256 << 10

	// maxUnknown is how many connections there may be on which no client has authenticated; half of the limit of open files
	// if that is less.
	maxUnknown = 1000
	// maxIdle is how many connections of clients that are known may have no request; a quarter of that limit if that is less.
	maxIdle = 4000
	// maxUnknownRequests is how many requests may run on these connections at once, beyond one on each.
	maxUnknownRequests = 500
	// maxTimedOut is how many handlers one connection may have that run on after their request was answered with a timeout.
	maxTimedOut = 100
)

// cancelLimit is how often a client may cancel requests, or be refused, before its connection is closed.
type cancelLimit struct {
	burst     int
	perSecond rate.Limit
}

var (
	// Controllers cancel all watches at once when they stop, and clients with short timeouts cancel request by request.
	knownCancelLimit   = cancelLimit{burst: 5000, perSecond: 200}
	unknownCancelLimit = cancelLimit{burst: 100, perSecond: 10}
)

func (a cancelLimit) limiter() *rate.Limiter { return rate.NewLimiter(a.perSecond, a.burst) }

// Closed is a metric of the connections that were closed for what their clients did, by reason; its help lists them.
var Closed = metrics.NewCounterVec(&metrics.CounterOpts{
	Name:           "sqube_connections_closed_total",
	Help:           "Connections that the server has closed for what their clients did, by reason: too many cancelled or refused requests (cancels), too many connections without an authenticated client (unauthenticated), too many without a request (idle), a watch that had to be ended on a connection that its client does not read (slow).",
	StabilityLevel: metrics.ALPHA,
}, []string{"reason"})

// Reasons are all that Closed counts by.
var Reasons = []string{cancels, unauthenticated, idle, Slow}

const (
	cancels         = "cancels"
	unauthenticated = "unauthenticated"
	idle            = "idle"
	// Slow is that a client does not read what a watch sends.
	Slow = "slow"
)

// Connections keeps account of the connections of one http.Server.
type Connections struct {
	mu   sync.Mutex
	open map[net.Conn]*connection
	// unknown are those on which no client has authenticated, in the order in which they came. The first has to make room
	// for the next one beyond maxUnknown: a client with credentials shows them soon.
	unknown *list.List
	// idle are those of known clients that have no request, in the order in which they came to rest.
	idle *list.List

	// active is how many have requests, and idled is closed when there are none.
	active int
	idled  chan struct{}

	maxUnknown, maxIdle int
	unknownRequests     atomic.Int32 // of maxUnknownRequests
}

// connection is the account of one connection.
type connection struct {
	net      net.Conn
	unknown  *list.Element // of Connections.unknown, at first
	idle     *list.Element // of Connections.idle, or nil
	active   bool          // it has requests
	known    atomic.Bool   // a client has authenticated on it
	running  atomic.Int32  // requests that are not authenticated so far
	timedOut atomic.Int32  // of maxTimedOut
	cancels  atomic.Pointer[rate.Limiter]
}

// New returns the account of a server that has no connections yet.
func New() *Connections {
	c := &Connections{open: map[net.Conn]*connection{}, unknown: list.New(), idle: list.New(), maxUnknown: maxUnknown, maxIdle: maxIdle}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil {
		c.maxUnknown = int(min(maxUnknown, files.Cur/2))
		c.maxIdle = int(min(maxIdle, files.Cur/4))
	}
	return c
}

// Configure sets all limits and hooks of the server that concern connections. A request that is not long-running may take
// requestTimeout. 0 for maxStreams means DefaultMaxStreams.
func (c *Connections) Configure(server *http.Server, maxStreams int, requestTimeout time.Duration) {
	if maxStreams == 0 {
		maxStreams = DefaultMaxStreams
	}
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

// opened begins the account of a connection, which is found in the context of its requests.
func (c *Connections) opened(ctx context.Context, conn net.Conn) context.Context {
	account := &connection{net: conn}
	account.cancels.Store(unknownCancelLimit.limiter())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unknown.Len() >= c.maxUnknown {
		c.unknown.Remove(c.unknown.Front()).(*connection).close(unauthenticated)
	}
	c.open[conn], account.unknown = account, c.unknown.PushBack(account)
	return context.WithValue(ctx, connectionKey{}, account)
}

// WaitIdle waits until no connection has a request, or ctx ends. Of an HTTP/2 connection that is closed while it has one, net/http
// starts the idle timer again, which keeps the whole server in memory for as long as connections may be idle.
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

// changed follows a connection. The one that has been idle for longest is closed when there are too many, as all are that
// are idle for long: its client opens another when it needs one.
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
		c.unknown.Remove(account.unknown) // or it is no longer in it
		delete(c.open, conn)
	}
}

// authenticated notes that the client is known.
func (c *Connections) authenticated(account *connection) {
	if account.known.Swap(true) {
		return
	}
	account.cancels.Store(knownCancelLimit.limiter())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unknown.Remove(account.unknown)
}

// cancelled notes that a request was cancelled, or refused.
func (a *connection) cancelled() {
	if !a.cancels.Load().Allow() {
		a.close(cancels)
	}
}

// close closes the connection at once, without a word to a client that may not listen.
func (a *connection) close(reason string) {
	conn := a.net
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	if err := conn.Close(); err != nil {
		return // it was closed before
	}
	Closed.WithLabelValues(reason).Inc()
	slog.Debug("closed a connection", "client", conn.RemoteAddr().String(), "reason", reason)
}

type connectionKey struct{}

// Close closes the connection that the request came on, and counts why.
func Close(r *http.Request, reason string) {
	if account := of(r); account != nil {
		account.close(reason)
	}
}

// of returns the account of the connection that the request came on; nil if it came from this process.
func of(r *http.Request) *connection {
	account, _ := r.Context().Value(connectionKey{}).(*connection)
	return account
}
