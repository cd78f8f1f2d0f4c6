package faults

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards TCP connections to a target, until a fault is injected. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string
	done     sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond // dropping has become false, or the proxy was closed
	links   map[*link]struct{}
	drops   bool
	closed  bool
}

// link is one connection through a proxy.
type link struct{ client, server net.Conn }

func (l *link) close() {
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// NewProxy starts a proxy in front of target, a HOST:PORT, on a free port of 127.0.0.1. It is stopped when the test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("a proxy in front of %s: %v", target, err)
	}
	p := &Proxy{listener: listener, target: target, links: map[*link]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	p.done.Add(1)
	go p.accept()
	t.Cleanup(p.close)
	return p
}

// Addr is the HOST:PORT on which the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes all connections. New ones are accepted as before.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Drop simulates a network that loses every packet: existing connections stay open but nothing passes, new ones get no
// response, and neither side learns that the other is gone.
func (p *Proxy) Drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = true
}

// Resume ends Drop. What was sent meanwhile arrives, as if retransmitted by TCP.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = false
	p.changed.Broadcast()
}

func (p *Proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.changed.Broadcast()
	for l := range p.links {
		l.close()
	}
	p.mu.Unlock()
	p.done.Wait()
}

// passes waits while packets are dropped, and returns false if the proxy is closed.
func (p *Proxy) passes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.drops && !p.closed {
		p.changed.Wait()
	}
	return !p.closed
}

func (p *Proxy) accept() {
	defer p.done.Done()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // out of file descriptors, perhaps
			continue
		}
		l := &link{client: client}
		p.mu.Lock()
		p.links[l] = struct{}{}
		p.mu.Unlock()
		p.done.Add(1)
		go p.serve(l)
	}
}

// serve connects a client and forwards both directions until one of them ends.
func (p *Proxy) serve(l *link) {
	defer p.done.Done()
	defer func() {
		p.mu.Lock()
		delete(p.links, l)
		l.close()
		p.mu.Unlock()
	}()
	if !p.passes() {
		return
	}
	server, err := net.DialTimeout("tcp", p.target, 10*time.Second)
	if err != nil {
		return // the client sees its connection closed
	}
	p.mu.Lock()
	l.server = server
	closed := p.closed
	p.mu.Unlock()
	if closed {
		return
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		p.copy(l.client, l.server)
	}()
	p.copy(l.server, l.client)
	<-back
}

// copy forwards what from sends until it ends, and then, unless packets are dropped, closes the connection.
func (p *Proxy) copy(to, from net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if !p.passes() {
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	// Not half-closed: databases send nothing after their client has closed.
	_ = to.Close()
	_ = from.Close()
}
