package flood

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/http2"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const (
	// How many connections clients open and leave idle, more than the server keeps, without and with credentials.
	unknownConnections = 1200
	knownConnections   = 4200
	// spareFiles is how many of the open files are reserved for other things.
	spareFiles = 500
	// dialers is how many goroutines open connections.
	dialers = 8
)

// TestIdleConnections opens thousands of connections, or as many as the limit of open files allows: unauthenticated ones, and
// then authenticated ones, half of them over HTTP/2.
func TestIdleConnections(t *testing.T) {
	var limit syscall.Rlimit
	harness.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	unknown, known := int(min(unknownConnections, limit.Cur-spareFiles)), int(min(knownConnections, limit.Cur-spareFiles))
	s := startTarget(t)
	t.Run("without credentials", func(t *testing.T) {
		s.under(t, func(ctx context.Context) {
			conns := s.open(ctx, t, unknown, func(int) (net.Conn, error) { return s.dial1(ctx, s.anonymous.Clone()) })
			if err := ask(conns[unknown-1]); err != nil {
				t.Errorf("the last connection is closed: %v", err)
			}
		})
	})
	t.Run("with credentials", func(t *testing.T) {
		s.under(t, func(ctx context.Context) {
			conns := s.open(ctx, t, known, func(i int) (net.Conn, error) {
				if i%2 == 0 || i == known-1 {
					return s.dial1(ctx, s.administrator.Clone())
				}
				return s.dial2(ctx, s.administrator.Clone())
			})
			if err := ask(conns[known-1]); err != nil {
				t.Errorf("the last connection is closed: %v", err)
			}
		})
	})
}

// open opens connections, which are closed when ctx ends.
func (s *target) open(ctx context.Context, t *testing.T, count int, dial func(i int) (net.Conn, error)) []net.Conn {
	conns := make([]net.Conn, count)
	var next atomic.Int64
	var running sync.WaitGroup
	for range dialers {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				var err error
				if conns[i], err = dial(i); err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
			}
		})
	}
	running.Wait()
	return conns
}

// dial1 opens an HTTP/1.1 connection. A client with credentials uses it once.
func (s *target) dial1(ctx context.Context, config *tls.Config) (net.Conn, error) {
	config.NextProtos = []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.(*tls.Conn).NetConn().Close() })
	if len(config.Certificates) > 0 {
		return conn, ask(conn)
	}
	return conn, nil
}

// ask sends a request over HTTP/1.1 and reads the response.
func ask(conn net.Conn) error {
	if _, err := io.WriteString(conn, "GET /version HTTP/1.1\r\nHost: h\r\n\r\n"); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("response %s", response.Status)
	}
	return nil
}

// dial2 opens an HTTP/2 connection and uses it once.
func (s *target) dial2(ctx context.Context, config *tls.Config) (net.Conn, error) {
	c, err := dial(ctx, s.address, config)
	if err != nil {
		return nil, err
	}
	if err := c.begin("GET", "/version", true); err != nil {
		return nil, err
	}
	if err := c.flush(); err != nil {
		return nil, err
	}
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			return nil, err
		}
		if frame.Header().StreamID == c.stream && frame.Header().Flags.Has(http2.FlagDataEndStream) {
			return c, nil
		}
	}
}

// TestFewFiles connects more clients than the server may open files: without credentials, which say nothing, and then with credentials, each of
// which gets the answer to its first request.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	const files = 256
	s := startTargetWith(t, sqube.Options{Datastore: harness.SQLite(t), Prepare: func(cmd *exec.Cmd) {
		// The shell replaces itself with sqube.
		cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, files), cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}})
	s.under(t, func(ctx context.Context) {
		s.open(ctx, t, 4*files, func(int) (net.Conn, error) { return s.dial1(ctx, s.anonymous.Clone()) })
	})
	s.open(t.Context(), t, 4*files, func(int) (net.Conn, error) { return s.dial1(t.Context(), s.administrator.Clone()) })
}
