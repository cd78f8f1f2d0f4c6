package servertest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"
)

// slowListener accepts connections whose bytes come late.
type slowListener struct {
	net.Listener
	faults *faults
	n      atomic.Int64
}

// Accept implements net.Listener.
func (l *slowListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("connection %d to %v", l.n.Add(1), l.Addr())
	return &slowConn{Conn: conn, faults: l.faults, name: name, draws: l.faults.draws("server", name)}, nil
}

type slowConn struct {
	net.Conn
	faults *faults
	name   string
	draws  *rand.Rand // for one reader at a time
}

// Read implements net.Conn.
func (c *slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if delay := min(c.faults.wait(c.draws, SlowWebhooks), slowestWebhook); n > 0 {
		if delay >= logged {
			c.faults.note("%s is %v late", c.name, delay.Round(time.Millisecond))
		}
		time.Sleep(delay)
	}
	return n, err
}
