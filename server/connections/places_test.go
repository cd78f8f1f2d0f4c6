package connections

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sqube/sqube/server/pipenet"
	"github.com/sqube/sqube/test/harness"
)

// crowd is a server in a bubble of synctest that may have few unauthenticated connections.
type crowd struct {
	connections *Connections
	listener    *pipenet.Listener
	finish      chan struct{} // ends requests to /slow
}

const (
	fewUnknown = 20
	fewPlaces  = 5
)

func newCrowd(t *testing.T) *crowd {
	c := &crowd{connections: New(), listener: pipenet.NewListener(&net.TCPAddr{}), finish: make(chan struct{})}
	c.connections.maxUnknown, c.connections.maxPlaces = fewUnknown, fewPlaces
	server := &http.Server{Handler: c.connections.Admit(asUser(c.connections.Authenticated(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-c.finish
		}
	}))))}
	c.connections.Configure(server, DefaultMaxStreams, time.Hour)
	served := make(chan error)
	go func() { served <- server.Serve(c.connections.Listen(c.listener)) }()
	t.Cleanup(func() {
		harness.Must(t, server.Close())
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return c
}

// client is a connection, and what it has read.
type client struct {
	net.Conn
	mu       sync.Mutex
	statuses []int
	closed   bool
}

// dial connects. It may wait until the server accepts the connection.
func (c *crowd) dial(t *testing.T) *client {
	conn, err := c.listener.Dial(context.Background(), "tcp", "")
	harness.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	read := &client{Conn: conn}
	go func() {
		reader := bufio.NewReader(conn)
		for {
			response, err := http.ReadResponse(reader, nil)
			read.mu.Lock()
			if err != nil {
				read.closed = true
				read.mu.Unlock()
				return
			}
			read.statuses = append(read.statuses, response.StatusCode)
			read.mu.Unlock()
		}
	}()
	return read
}

// send sends text, unless the server has closed the connection.
func (c *client) send(text string) { go func() { _, _ = io.WriteString(c, text) }() }

func (c *client) ask(path, name string) {
	c.send("GET " + path + " HTTP/1.1\r\nHost: h\r\nUser: " + name + "\r\n\r\n")
}

// served fails the test unless the client has got answers to a number of requests, and its connection is open.
func (c *client) served(t *testing.T, what string, requests int) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.statuses) != requests || c.closed {
		t.Errorf("%s: %v, closed %v, want %d answers", what, c.statuses, c.closed, requests)
	}
}

func (c *client) isClosed() bool {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

func count(clients []*client) (closed int) {
	for _, c := range clients {
		if c.isClosed() {
			closed++
		}
	}
	return closed
}

// TestSilent has clients that connect and say nothing, more than the server accepts.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		known := c.dial(t)
		known.ask("/", "jane")
		known.served(t, "a client that authenticates", 1)
		var silent []*client
		const more = 30
		for range fewUnknown + more {
			silent = append(silent, c.dial(t))
		}
		stranger := c.dial(t)
		stranger.ask("/", user.Anonymous)
		time.Sleep(maxPatience)
		stranger.served(t, "a new client", 1)
		known.ask("/", "jane")
		known.served(t, "an authenticated client", 2)
		if closed := count(silent); closed <= more || closed > more+2 {
			t.Errorf("%d silent connections are closed, want those in whose favour others came", closed)
		}
		time.Sleep(ReadHeaderTimeout / 2)
		if still := count(silent); still > more+2 {
			t.Errorf("%d are closed while no client waits", still)
		}
	})
}

// TestPlaces has clients that begin to speak, more than the server has places for.
func TestPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		var running []*client
		for range fewPlaces - 1 {
			client := c.dial(t)
			client.ask("/slow", user.Anonymous)
			running = append(running, client)
		}
		silent := c.dial(t)
		silent.send("GET / HTTP/1.1\r\n")
		synctest.Wait()
		late := c.dial(t)
		late.ask("/", user.Anonymous)
		time.Sleep(maxPatience / 2)
		if silent.isClosed() {
			t.Error("a client that is silent for a moment loses its connection")
		}
		time.Sleep(maxPatience)
		late.served(t, "a client that waited", 1)
		if !silent.isClosed() {
			t.Error("a client that stays silent keeps its connection")
		}

		late.ask("/slow", user.Anonymous) // all have requests now
		synctest.Wait()
		later := c.dial(t)
		later.ask("/", "jane")
		time.Sleep(2 * ReadHeaderTimeout)
		later.served(t, "a client that waits", 0)
		close(c.finish)
		time.Sleep(maxPatience)
		later.served(t, "a client that waited longer than a client may take", 1)
		if closed := count(append(running, late)); closed > 1 {
			t.Errorf("%d connections were closed for one client", closed)
		}
	})
}

// TestTrickle has clients that send their requests in bytes.
func TestTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		var dripping sync.WaitGroup
		for range fewPlaces {
			slow := c.dial(t)
			dripping.Go(func() {
				for err := error(nil); err == nil; _, err = io.WriteString(slow, "G") {
					time.Sleep(settleTime / 2)
				}
			})
			defer dripping.Wait()
			defer slow.Close()
		}
		time.Sleep(settleTime)
		synctest.Wait()
		client := c.dial(t)
		client.ask("/", "jane")
		time.Sleep(2 * maxPatience)
		client.served(t, "a client beside slow ones", 1)
	})
}

// TestAttack has ever more clients that begin to speak, and then say nothing.
func TestAttack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t)
		ctx, stop := context.WithCancel(context.Background())
		var attack sync.WaitGroup
		defer attack.Wait()
		defer stop()
		attack.Go(func() {
			for ctx.Err() == nil {
				conn, err := c.listener.Dial(ctx, "tcp", "")
				if err != nil {
					return
				}
				go func() { _, _ = io.WriteString(conn, "G") }()
				context.AfterFunc(ctx, func() { conn.Close() })
				time.Sleep(minPatience / fewPlaces)
			}
		})
		time.Sleep(10 * time.Minute)
		client := c.dial(t)
		client.ask("/", "jane")
		time.Sleep(time.Second)
		client.served(t, "a client beside an attack", 1)
	})
}
