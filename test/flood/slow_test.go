package flood

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

const (
	slowClients = 10 // of each kind, half of them with credentials
	// drip is how often a slow client sends a byte.
	drip = 200 * time.Millisecond
	// slowPatience is how long the server may take to disconnect a slow client. Its --request-timeout is far shorter.
	slowPatience = time.Minute
)

// TestSlowClients runs clients that never finish what they began. The server must disconnect each.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	s := startTarget(t, "--request-timeout=5s")
	const configMaps = "/api/v1/namespaces/default/configmaps"
	attacks := map[string]func(ctx context.Context, config *tls.Config) error{
		"TLS handshake": func(ctx context.Context, _ *tls.Config) error {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.address)
			if err != nil {
				return err
			}
			defer conn.Close()
			return dripUntilClosed(ctx, conn, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
		},
		"HTTP/1.1 header": func(ctx context.Context, config *tls.Config) error {
			return s.drip1(ctx, config, "GET /version HTTP/1.1\r\nHost: h\r\nX-Long: ")
		},
		"HTTP/1.1 body": func(ctx context.Context, config *tls.Config) error {
			return s.drip1(ctx, config, "POST "+configMaps+" HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n")
		},
		// Without credentials, responses are so short that the kernel buffers thousands of them.
		"HTTP/1.1 responses, pipelined": func(ctx context.Context, _ *tls.Config) error {
			config := s.administrator.Clone()
			config.NextProtos = []string{"http/1.1"}
			conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", s.address)
			if err != nil {
				return err
			}
			defer conn.Close()
			many := strings.Repeat("GET /openapi/v3/apis/apps/v1 HTTP/1.1\r\nHost: h\r\n\r\n", 100)
			for { // until the server no longer reads, and closes
				if err := conn.SetWriteDeadline(time.Now().Add(slowPatience)); err != nil {
					return err
				}
				if _, err := io.WriteString(conn, many); err != nil {
					return closed(err)
				}
			}
		},
		"HTTP/2 body": func(ctx context.Context, config *tls.Config) error {
			return s.streams(ctx, config, "POST", configMaps, false)
		},
		"HTTP/2 responses": func(ctx context.Context, config *tls.Config) error {
			return s.streams(ctx, config, "GET", "/api/v1/namespaces", true, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		},
		"HTTP/2 watch": func(ctx context.Context, config *tls.Config) error {
			return s.streams(ctx, config, "GET", "/api/v1/namespaces?watch=true", true, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		},
	}
	s.under(t, func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, slowPatience)
		defer cancel()
		var running sync.WaitGroup
		for name, attack := range attacks {
			for i := range slowClients {
				running.Go(func() {
					begin := time.Now()
					if err := attack(ctx, s.credentials(i)); err != nil {
						t.Errorf("%s, client %d after %s: %v", name, i, time.Since(begin), err)
					}
				})
			}
		}
		running.Wait()
	})
}

// closed returns nil if a connection failed because the server closed it, and not because of a timeout.
func closed(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// drip1 is dripUntilClosed on an HTTP/1.1 connection.
func (s *target) drip1(ctx context.Context, config *tls.Config, begin string) error {
	config.NextProtos = []string{"http/1.1"}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", s.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	return dripUntilClosed(ctx, conn, begin)
}

// dripUntilClosed sends the beginning and then single bytes at intervals, until the server closes the connection.
func dripUntilClosed(ctx context.Context, conn net.Conn, begin string) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, conn) // the response does not matter
	}()
	rest := begin
	for {
		if _, err := io.WriteString(conn, rest); err != nil {
			return closed(err)
		}
		rest = "x"
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(drip):
		}
	}
}

// streams starts as many requests as one connection may have, and waits until the server has ended each. A request without end
// sends single bytes of its body at intervals.
func (s *target) streams(ctx context.Context, config *tls.Config, method, path string, end bool, settings ...http2.Setting) error {
	c, err := dial(ctx, s.address, config, settings...)
	if err != nil {
		return err
	}
	defer c.Close()
	const streams = 100
	open := map[uint32]bool{}
	for range streams {
		if err := c.begin(method, path, end); err != nil {
			return err
		}
		open[c.stream] = true
	}
	if err := c.flush(); err != nil {
		return closed(err)
	}
	var mutex sync.Mutex
	dripping, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for !end {
			select {
			case <-dripping.Done():
				return
			case <-time.After(drip):
			}
			mutex.Lock()
			for stream := range open {
				_ = c.WriteData(stream, false, []byte{'{'})
			}
			mutex.Unlock()
			if c.flush() != nil {
				return
			}
		}
	}()
	for len(open) > 0 {
		frame, err := c.ReadFrame()
		if err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("%d streams are still open", len(open))
			}
			return closed(err)
		}
		_, reset := frame.(*http2.RSTStreamFrame)
		if reset || frame.Header().Flags.Has(http2.FlagDataEndStream) && frame.Header().StreamID != 0 {
			mutex.Lock()
			delete(open, frame.Header().StreamID)
			mutex.Unlock()
		}
	}
	return nil
}
