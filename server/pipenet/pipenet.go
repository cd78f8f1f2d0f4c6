// Package pipenet is a network inside a process: connections are pairs of net.Pipe. It needs no sockets, so it also works in a bubble of
// testing/synctest, whose clock stands still while a goroutine waits for a socket.
package pipenet

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// Network connects dialers with listeners. The zero value is a network on which nobody listens.
type Network struct {
	mu        sync.Mutex
	listeners map[string]*Listener
	lastPort  int
}

// firstPort is below the ports that Listen gives, which are those that systems give, too.
const firstPort = 32767

// Listen listens on an address HOST:PORT until the listener is closed. If the port is 0, it takes a free one. network is ignored: it gives
// Listen the form of net.Listen.
func (n *Network) Listen(_, address string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners == nil {
		n.listeners, n.lastPort = map[string]*Listener{}, firstPort
	}
	if port == "0" {
		n.lastPort++
		port = strconv.Itoa(n.lastPort)
		address = net.JoinHostPort(host, port)
	}
	if n.listeners[address] != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, syscall.EADDRINUSE)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	l := NewListener(&net.TCPAddr{IP: net.ParseIP(host), Port: number})
	l.onClose = func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.listeners, address)
	}
	n.listeners[address] = l
	return l, nil
}

// Dial connects to the listener on address, or fails with ECONNREFUSED. It has the form of net.Dialer's DialContext.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: fmt.Errorf("nobody listens on %s in this process: %w", address, syscall.ECONNREFUSED)}
	}
	return l.Dial(ctx, network, address)
}

// Listener accepts the connections that its Dial makes.
type Listener struct {
	address     net.Addr
	connections chan net.Conn
	closed      chan struct{}
	close       sync.Once
	onClose     func()
}

// NewListener returns a listener whose connections have address at both ends. It must be closed.
func NewListener(address net.Addr) *Listener {
	return &Listener{address: address, connections: make(chan net.Conn), closed: make(chan struct{}), onClose: func() {}}
}

// Dial connects to the listener. It has the form of net.Dialer's DialContext.
func (l *Listener) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.connections <- connection{theirs, l.address}:
		return connection{ours, l.address}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.closed:
		return nil, &net.OpError{Op: "dial", Net: network, Addr: l.address, Err: syscall.ECONNREFUSED}
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.connections:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. Connections stay open.
func (l *Listener) Close() error {
	l.close.Do(func() {
		close(l.closed)
		l.onClose()
	})
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.address }

// connection has an address that handlers and the audit log can read.
type connection struct {
	net.Conn
	address net.Addr
}

func (c connection) RemoteAddr() net.Addr { return c.address }

func (c connection) LocalAddr() net.Addr { return c.address }
