package connections

import (
	"container/list"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"
)

const (
	// maxUnknown limits the connections on which no client has authenticated: to this number, or to half of the limit of open files if
	// that is less. Further ones wait in the kernel.
	maxUnknown = 4000
	// maxPlaces limits those of them whose TLS handshake has begun, since each then holds 40 KiB and more, and a silent one 10. Further ones
	// wait until one of these has authenticated or is closed.
	maxPlaces = 1000

	// A connection may be closed in favour of another one if the server has waited for its client this long, all in all, and for all
	// other clients since one of them went on: at most, which is enough for clients that are busy themselves, and at least, under an attack.
	maxPatience = 5 * time.Second
	minPatience = 200 * time.Millisecond
	// settleTime is how long nothing must have arrived from a client whose connection is closed, unless the server has waited for it for
	// twice the patience.
	settleTime = 100 * time.Millisecond
	// retryTime is how often a connection to close is looked for while others wait.
	retryTime = 100 * time.Millisecond
)

// patience is with clients that must go on to keep their connections. It gets shorter if most do not.
type patience struct {
	limit time.Duration
	last  time.Time // when a client went on
}

// lost is called when a client did not go on.
func (p *patience) lost() { p.limit = max(p.limit-p.limit/100, minPatience) }

// kept is called when a client went on.
func (p *patience) kept() {
	p.limit = min(p.limit+p.limit/50, maxPatience)
	p.last = time.Now()
}

// Listen returns a listener whose connections c tracks.
func (c *Connections) Listen(listener net.Listener) net.Listener {
	return &tracked{Listener: listener, connections: c, closed: make(chan struct{})}
}

type tracked struct {
	net.Listener
	connections *Connections
	closed      chan struct{}
	once        sync.Once
}

// Accept implements net.Listener.
func (t *tracked) Accept() (net.Conn, error) {
	if !t.connections.room(t.closed) {
		return nil, net.ErrClosed
	}
	conn, err := t.Listener.Accept()
	if err != nil {
		if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
			t.connections.make(true) // net/http tries again after a pause
		}
		return nil, err
	}
	return t.connections.accept(conn), nil
}

// Close implements net.Listener.
func (t *tracked) Close() error {
	t.once.Do(func() { close(t.closed) })
	return t.Listener.Close()
}

func (c *Connections) accept(conn net.Conn) *connection {
	account := &connection{Conn: conn, all: c}
	account.cancels.Store(newUnknownCancels())
	c.mu.Lock()
	defer c.mu.Unlock()
	account.in = c.accepted
	account.unknown = c.accepted.PushBack(account)
	return account
}

// room waits until one more connection may be accepted. It returns false when the listener is closed.
func (c *Connections) room(closed <-chan struct{}) bool {
	for {
		c.mu.Lock()
		full := c.accepted.Len()+c.places.Len() >= c.maxUnknown
		c.mu.Unlock()
		if !full || c.make(true) {
			return true
		}
		select {
		case <-closed:
			return false
		case <-c.left:
		case <-time.After(retryTime):
		}
	}
}

// place gives a connection whose client has begun to speak one of maxPlaces, for which it may wait. It reports whether it had one before, and
// false if the connection was closed.
func (c *Connections) place(account *connection) (had, ok bool) {
	c.mu.Lock()
	switch {
	case account.closed:
		c.mu.Unlock()
		return false, false
	case account.in != c.accepted:
		c.mu.Unlock()
		return true, true
	}
	account.placed = make(chan struct{})
	account.queued = c.queue.PushBack(account)
	c.fill()
	waits := account.queued != nil
	looks := waits && !c.retrying
	c.mu.Unlock()
	if looks {
		c.makePlaces()
	}
	if waits {
		<-account.placed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return false, !account.closed
}

// fill gives free places to those that have waited longest. A client that has gone meanwhile needs none.
func (c *Connections) fill() {
	for c.queue.Len() > 0 && c.places.Len() < c.maxPlaces {
		account := c.queue.Front().Value.(*connection)
		c.leaveQueue(account)
		if gone(account.Conn) {
			account.closed = true
			continue
		}
		c.toSpeak.kept()
		c.accepted.Remove(account.unknown)
		account.in, account.unknown = c.places, c.places.PushBack(account)
	}
}

func (c *Connections) leaveQueue(account *connection) {
	if account.queued != nil {
		c.queue.Remove(account.queued)
		account.queued = nil
		close(account.placed)
	}
}

// makePlaces closes connections as long as others wait for their places. If it finds none, it tries again later.
func (c *Connections) makePlaces() {
	c.mu.Lock()
	waiting := c.queue.Len()
	c.mu.Unlock()
	for ; waiting > 0; waiting-- {
		if !c.make(false) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if !c.retrying {
				c.retrying = true
				time.AfterFunc(retryTime, func() {
					c.mu.Lock()
					c.retrying = false
					c.mu.Unlock()
					c.makePlaces()
				})
			}
			return
		}
	}
}

// make closes the oldest connection, of those with a place or of all, for whose client the server has waited too long. It reports whether there
// was one.
func (c *Connections) make(all bool) bool {
	c.mu.Lock()
	var victim *connection
	if all {
		victim = oldestOf(c.accepted, &c.toSpeak)
	}
	if victim == nil {
		victim = oldestOf(c.places, &c.toAuthenticate)
	}
	c.mu.Unlock()
	if victim == nil {
		return false
	}
	victim.drop(unauthenticated)
	return true
}

// oldestOf returns the oldest connection whose client has gone, or lets the server wait for too long; nil if there is none.
func oldestOf(l *list.List, p *patience) *connection {
	if time.Since(p.last) < p.limit {
		return nil
	}
	for e := l.Front(); e != nil; e = e.Next() {
		account := e.Value.(*connection)
		switch {
		case account.closed:
		case account.queued != nil && gone(account.Conn):
			return account
		case account.waits.exceeds(p.limit) && !unread(account.Conn):
			p.lost()
			return account
		}
	}
	return nil
}

// forget removes a connection that is closed.
func (c *Connections) forget(account *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	account.closed = true
	c.leaveQueue(account)
	if account.idle != nil {
		c.idle.Remove(account.idle)
		account.idle = nil
	}
	c.noLongerUnknown(account)
}

// noLongerUnknown lets others have the connection's place.
func (c *Connections) noLongerUnknown(account *connection) {
	if account.unknown == nil {
		return
	}
	account.in.Remove(account.unknown)
	account.unknown = nil
	c.fill()
	select {
	case c.left <- struct{}{}:
	default:
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
	c.toAuthenticate.kept()
	c.noLongerUnknown(account)
}
