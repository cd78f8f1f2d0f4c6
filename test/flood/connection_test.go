package flood

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// connection is a client's end of an HTTP/2 connection, which can send anything.
type connection struct {
	net.Conn
	*http2.Framer // writes to pending
	pending       bytes.Buffer
	authority     string
	encoder       *hpack.Encoder
	header        bytes.Buffer
	stream        uint32 // the last one
}

// dial opens a connection that is closed when ctx ends, and sends the preface and the settings. It reads nothing.
func dial(ctx context.Context, address string, config *tls.Config, settings ...http2.Setting) (*connection, error) {
	config.NextProtos = []string{http2.NextProtoTLS}
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { conn.(*tls.Conn).NetConn().Close() })
	c := &connection{Conn: conn, authority: address}
	c.Framer = http2.NewFramer(&c.pending, conn)
	c.encoder = hpack.NewEncoder(&c.header)
	c.pending.WriteString(http2.ClientPreface)
	if err := c.WriteSettings(settings...); err != nil {
		return nil, err
	}
	return c, c.flush()
}

// flush sends what was written.
func (c *connection) flush() error {
	_, err := c.Write(c.pending.Bytes())
	c.pending.Reset()
	return err
}

// encode returns the header block of a request.
func (c *connection) encode(method, path string, more ...hpack.HeaderField) []byte {
	c.header.Reset()
	for _, field := range append([]hpack.HeaderField{
		{Name: ":method", Value: method}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: c.authority}, {Name: ":path", Value: path},
	}, more...) {
		_ = c.encoder.WriteField(field) // to a buffer
	}
	return c.header.Bytes()
}

// begin writes the header of a request on a new stream. end is set for requests without a body.
func (c *connection) begin(method, path string, end bool, more ...hpack.HeaderField) error {
	c.next()
	return c.WriteHeaders(http2.HeadersFrameParam{StreamID: c.stream, BlockFragment: c.encode(method, path, more...), EndStream: end, EndHeaders: true})
}

func (c *connection) next() {
	if c.stream == 0 {
		c.stream = 1
		return
	}
	c.stream += 2
}

// drain reads until the connection ends or the server sends GOAWAY, and then closes it.
func (c *connection) drain() {
	defer c.Close()
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			return
		}
		if _, ok := frame.(*http2.GoAwayFrame); ok {
			return
		}
	}
}

// attackers runs several attackers at once: each opens connections in sequence, and sends on each until that fails or ctx ends.
func (s *target) attackers(ctx context.Context, count int, send func(c *connection) error) {
	var running sync.WaitGroup
	for i := range count {
		running.Go(func() {
			for ctx.Err() == nil {
				c, err := dial(ctx, s.address, s.credentials(i))
				if err != nil {
					continue
				}
				go c.drain()
				for ctx.Err() == nil && send(c) == nil && c.flush() == nil {
				}
				c.Close()
			}
		})
	}
	running.Wait()
}
