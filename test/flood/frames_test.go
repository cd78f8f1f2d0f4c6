package flood

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	attackers  = 20
	resetTime  = 2 * time.Second
	floodTime  = 500 * time.Millisecond
	framesOnce = 50 // frames per write
)

// TestRapidReset starts requests and resets their streams at once, as fast as possible (CVE-2023-44487): cheap requests, some
// that need the database, and large ones.
func TestRapidReset(t *testing.T) {
	s := startTarget(t)
	large := hpack.HeaderField{Name: "x-large", Value: strings.Repeat("x", 100<<10), Sensitive: true}
	for _, attack := range []struct {
		name, path string
		once       int
		header     []hpack.HeaderField
	}{
		{"version", "/version", framesOnce, nil},
		{"list", "/api/v1/configmaps", framesOnce, nil},
		{"deadline", "/api/v1/configmaps?timeout=1ms", framesOnce, nil},
		{"large headers", "/api/v1/configmaps", 1, []hpack.HeaderField{large}},
	} {
		t.Run(attack.name, func(t *testing.T) {
			s.under(t, func(ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, resetTime)
				defer cancel()
				s.attackers(ctx, attackers, func(c *connection) error {
					for range attack.once {
						if err := c.request(attack.path, attack.header...); err != nil {
							return err
						}
						if err := c.WriteRSTStream(c.stream, http2.ErrCodeCancel); err != nil {
							return err
						}
					}
					return nil
				})
			})
		})
	}
}

// request writes a request without a body, in as many frames as its header needs.
func (c *connection) request(path string, header ...hpack.HeaderField) error {
	const frame = 16 << 10
	c.next()
	block := c.encode("GET", path, header...)
	first := block[:min(len(block), frame)]
	block = block[len(first):]
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream, BlockFragment: first, EndStream: true, EndHeaders: len(block) == 0}); err != nil {
		return err
	}
	for len(block) > 0 {
		part := block[:min(len(block), frame)]
		block = block[len(part):]
		if err := c.WriteContinuation(c.stream, len(block) == 0, part); err != nil {
			return err
		}
	}
	return nil
}

// TestFrames sends frames that cost the sender nothing.
func TestFrames(t *testing.T) {
	s := startTarget(t)
	for _, flood := range []struct {
		name string
		send func(c *connection) error
	}{
		{"SETTINGS", func(c *connection) error {
			return c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 1})
		}},
		{"PING", func(c *connection) error { return c.WritePing(false, [8]byte{}) }},
		{"PRIORITY", func(c *connection) error {
			c.next()
			return c.WritePriority(c.stream, http2.PriorityParam{StreamDep: c.stream + 2, Weight: 1})
		}},
		{"WINDOW_UPDATE", func(c *connection) error { return c.WriteWindowUpdate(0, 1) }},
		{"empty DATA", func(c *connection) error {
			if c.stream == 0 {
				if err := c.begin("POST", "/api/v1/namespaces/default/configmaps", false); err != nil {
					return err
				}
			}
			return c.WriteData(c.stream, false, nil)
		}},
		{"CONTINUATION", func(c *connection) error {
			if c.stream == 0 {
				c.next()
				if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream, BlockFragment: c.encode("GET", "/version"), EndStream: true}); err != nil {
					return err
				}
			}
			return c.WriteContinuation(c.stream, false, nil)
		}},
		{"header that grows", func(c *connection) error {
			if c.stream == 0 {
				c.next()
				if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream, BlockFragment: c.encode("GET", "/version"), EndStream: true}); err != nil {
					return err
				}
			}
			c.header.Reset()
			_ = c.encoder.WriteField(hpack.HeaderField{Name: "x-" + strconv.Itoa(c.header.Len()), Value: strings.Repeat("x", 1000), Sensitive: true})
			return c.WriteContinuation(c.stream, false, c.header.Bytes())
		}},
		// One field of 4 KB, sent once and then referenced a thousand times in a few bytes.
		{"header of many times its size", func(c *connection) error {
			field := hpack.HeaderField{Name: "x-bomb", Value: strings.Repeat("x", 3900)}
			bomb := make([]hpack.HeaderField, 1000)
			for i := range bomb {
				bomb[i] = field
			}
			return c.begin("GET", "/version", true, bomb...)
		}},
		{"requests over the limit of streams", func(c *connection) error {
			return c.begin("GET", "/api/v1/configmaps?watch=true", true)
		}},
	} {
		t.Run(flood.name, func(t *testing.T) {
			s.under(t, func(ctx context.Context) {
				ctx, cancel := context.WithTimeout(ctx, floodTime)
				defer cancel()
				s.attackers(ctx, attackers, func(c *connection) error {
					for range framesOnce {
						if err := flood.send(c); err != nil {
							return err
						}
					}
					return nil
				})
			})
		})
	}
}
