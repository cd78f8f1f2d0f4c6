package flood

import (
	"context"
	"net"
	"testing"

	"golang.org/x/net/http2"
)

// TestStrangers runs as many clients without credentials as the server keeps, each with as many requests as a connection may
// have, that read no responses.
func TestStrangers(t *testing.T) {
	t.Parallel()
	const clients, requests = 1000, 100
	s := startTarget(t)
	s.under(t, func(ctx context.Context) {
		s.open(ctx, t, clients, func(int) (net.Conn, error) {
			c, err := dial(ctx, s.address, s.anonymous.Clone(), http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			if err != nil {
				return nil, err
			}
			for range requests {
				if err := c.begin("GET", "/api/v1/pods?watch=true", true); err != nil {
					return nil, err
				}
			}
			_ = c.flush() // the server may close the connection at any time
			for {
				frame, err := c.ReadFrame()
				if _, ok := frame.(*http2.HeadersFrame); ok || err != nil {
					return c, nil
				}
			}
		})
	})
}
