package faults

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// echo responds to each line with a and the line, until the test ends.
func echo(t *testing.T) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Must(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					fmt.Fprintf(conn, "a %s\n", lines.Text())
				}
			}()
		}
	}()
	return listener.Addr().String()
}

// line is a connection that sends lines and reads the responses.
type line struct {
	net.Conn
	answers *bufio.Reader
}

func dial(t *testing.T, p *Proxy) *line {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	harness.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return &line{conn, bufio.NewReader(conn)}
}

func (l *line) say(t *testing.T, text string) {
	t.Helper()
	if _, err := fmt.Fprintln(l, text); err != nil {
		t.Fatal(err)
	}
}

func (l *line) hears(t *testing.T, want string) {
	t.Helper()
	harness.Must(t, l.SetReadDeadline(time.Now().Add(30*time.Second)))
	if got, err := l.answers.ReadString('\n'); got != want+"\n" {
		t.Fatalf("the response is %q, want %q: %v", got, want, err)
	}
}

// silent checks that nothing arrives and the connection stays open for a moment.
func (l *line) silent(t *testing.T) {
	t.Helper()
	harness.Must(t, l.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	if got, err := l.answers.ReadByte(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a silent connection received %q, %v", got, err)
	}
}

func TestProxyPassesAndDrops(t *testing.T) {
	p := NewProxy(t, echo(t))
	old := dial(t, p)
	old.say(t, "one")
	old.hears(t, "a one")

	p.Drop()
	fresh := dial(t, p)
	old.say(t, "two")
	fresh.say(t, "three")
	old.silent(t)
	fresh.silent(t)

	p.Resume()
	old.hears(t, "a two")
	fresh.hears(t, "a three")
}

func TestProxyCuts(t *testing.T) {
	p := NewProxy(t, echo(t))
	l := dial(t, p)
	l.say(t, "one")
	l.hears(t, "a one")

	p.Cut()
	if _, err := l.answers.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a cut connection is not closed: %v", err)
	}
	l = dial(t, p)
	l.say(t, "two")
	l.hears(t, "a two")
}

// TestProxyEndsWhileDropping checks that the end of a test does not wait for the network.
func TestProxyEndsWhileDropping(t *testing.T) {
	t.Run("dropping", func(t *testing.T) {
		p := NewProxy(t, echo(t))
		l := dial(t, p)
		l.say(t, "one")
		l.hears(t, "a one")
		p.Drop()
		l.say(t, "two")
		dial(t, p)
	})
}
