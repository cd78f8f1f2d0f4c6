package connections

import (
	"container/list"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// connection is a client's connection, below TLS.
type connection struct {
	net.Conn
	all *Connections

	known    atomic.Bool  // a client has authenticated
	running  atomic.Int32 // requests that have not been authenticated yet
	timedOut atomic.Int32 // of maxTimedOut
	cancels  atomic.Pointer[rate.Limiter]

	// Until its TLS handshake is over, the server reads it in turns.
	secured atomic.Bool
	turn    atomic.Bool // has one
	waits   waits

	// These are guarded by Connections.mu.
	in      *list.List    // Connections.accepted or placed, until a client has authenticated
	unknown *list.Element // of in
	queued  *list.Element // of Connections.queue, or nil
	placed  chan struct{} // closed when it leaves the queue
	idle    *list.Element // of Connections.idle, or nil
	active  bool          // has requests
	closed  bool

	deadlines deadlines
}

// Read implements net.Conn. The time that the server lets the client wait in it does not count for the client's deadlines.
func (c *connection) Read(p []byte) (int, error) {
	if c.known.Load() {
		return c.Conn.Read(p)
	}
	c.endTurn()
	c.waits.add(1, 0)
	n, err := c.Conn.Read(p)
	c.waits.add(-1, 0)
	if err != nil || c.secured.Load() {
		return n, err
	}
	begin := time.Now()
	begun, ok := c.all.place(c)
	if !ok {
		return n, io.ErrUnexpectedEOF
	}
	c.all.turns.take(begun)
	c.turn.Store(true)
	if c.secured.Load() {
		c.endTurn()
	}
	c.deadlines.extend(c.Conn, begin)
	return n, nil
}

// Write implements net.Conn.
func (c *connection) Write(p []byte) (int, error) {
	c.endTurn() // it may wait for the client
	return c.Conn.Write(p)
}

func (c *connection) endTurn() {
	if c.turn.Load() && c.turn.Swap(false) {
		c.all.turns.give()
	}
}

// secure records that the TLS handshake is over.
func (c *connection) secure() {
	if !c.secured.Swap(true) {
		c.endTurn()
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.all.forget(c)
	c.endTurn()
	return c.Conn.Close()
}

// SetDeadline implements net.Conn.
func (c *connection) SetDeadline(at time.Time) error {
	return c.deadlines.set(c.Conn, &at, &at)
}

// SetReadDeadline implements net.Conn.
func (c *connection) SetReadDeadline(at time.Time) error {
	return c.deadlines.set(c.Conn, &at, nil)
}

// SetWriteDeadline implements net.Conn.
func (c *connection) SetWriteDeadline(at time.Time) error {
	return c.deadlines.set(c.Conn, nil, &at)
}

// cancelled records that a request was cancelled or refused.
func (c *connection) cancelled() {
	if !c.cancels.Load().Allow() {
		c.drop(cancels)
	}
}

// drop closes the connection at once, without TLS or HTTP messages, which the client may not read.
func (c *connection) drop(reason string) {
	if err := c.Close(); err != nil {
		return // already closed
	}
	Closed.WithLabelValues(reason).Inc()
	slog.Debug("closed a connection", "client", c.RemoteAddr().String(), "reason", reason)
}

// accountOf returns the connection that Listen has made; nil if another listener has.
func accountOf(conn net.Conn) *connection {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	account, _ := conn.(*connection)
	return account
}

// waits adds up how long the server waits for a client: while it reads, and works on no request.
type waits struct {
	mu               sync.Mutex
	reading, working int
	since            time.Time // of the current wait
	total            time.Duration
}

func (w *waits) add(reading, working int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.waiting() {
		w.total += now.Sub(w.since)
	}
	w.reading += reading
	w.working += working
	w.since = now
}

func (w *waits) waiting() bool { return w.reading > 0 && w.working == 0 }

// exceeds reports whether the server waits for the client now, and has done so for the patience in total. Bytes that arrived just now may be of
// a request that has not begun yet, which gives a slow client more time, but not for ever.
func (w *waits) exceeds(patience time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.waiting() {
		return false
	}
	now := time.Since(w.since)
	return w.total+now >= patience && (now >= settleTime || w.total+now >= 2*patience)
}

// deadlines are those of a connection, which are later if the client has to wait.
type deadlines struct {
	mu          sync.Mutex
	read, write time.Time
}

// set sets those that are not nil.
func (d *deadlines) set(conn net.Conn, read, write *time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if read != nil {
		d.read = *read
		if err := conn.SetReadDeadline(*read); err != nil {
			return err
		}
	}
	if write != nil {
		d.write = *write
		return conn.SetWriteDeadline(*write)
	}
	return nil
}

// extend adds the time since begin to deadlines that had not passed then.
func (d *deadlines) extend(conn net.Conn, begin time.Time) {
	waited := time.Since(begin)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read.After(begin) {
		d.read = d.read.Add(waited)
		_ = conn.SetReadDeadline(d.read) // fails if the connection is closed
	}
	if d.write.After(begin) {
		d.write = d.write.Add(waited)
		_ = conn.SetWriteDeadline(d.write)
	}
}
