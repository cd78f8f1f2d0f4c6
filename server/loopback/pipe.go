package loopback

import (
	"errors"
	"sync"
)

// errBodyClosed is the error of writes to a body that the client has closed.
var errBodyClosed = errors.New("loopback: the client closed the response body")

// pipeBuffer is how many bytes a handler may be ahead of its client, about the size of a socket buffer.
const pipeBuffer = 32 << 10

// A pipe has one of buffers only while it holds unread bytes: thousands of idle watches have none.
var buffers = sync.Pool{New: func() any { return new([pipeBuffer]byte) }}

// pipe carries a body from a handler to a client. Unlike io.Pipe it buffers, so that an event costs no switch to the client's
// goroutine and back, and releases its memory when it is empty.
type pipe struct {
	mu      sync.Mutex
	changed sync.Cond // on mu: bytes were written or read, or an end was closed

	buf  *[pipeBuffer]byte // nil when empty
	r, w int               // buf[r:w] is unread

	end    error // the writer is done; the reader gets this after the last byte
	broken error // both ends get this at once
}

func newPipe() *pipe {
	p := &pipe{}
	p.changed.L = &p.mu
	return p
}

// Write copies all of b into the pipe, waiting for the reader whenever the buffer is full.
func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	written := 0
	for {
		if p.broken != nil {
			return written, p.broken
		}
		if p.end != nil {
			return written, errors.New("loopback: write after the handler returned")
		}
		if written == len(b) {
			return written, nil
		}
		if p.buf == nil {
			p.buf = buffers.Get().(*[pipeBuffer]byte)
		}
		if n := copy(p.buf[p.w:], b[written:]); n > 0 {
			p.w += n
			written += n
			p.changed.Broadcast()
			continue
		}
		p.changed.Wait()
	}
}

// Read waits for at least one byte. After the last one it returns the reason given to closeWrite.
func (p *pipe) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.broken != nil:
			return 0, p.broken
		case p.buf != nil:
			n := copy(b, p.buf[p.r:p.w])
			p.r += n
			if p.r == p.w {
				p.release()
				p.changed.Broadcast()
			}
			return n, nil
		case p.end != nil:
			return 0, p.end
		}
		p.changed.Wait()
	}
}

// closeWrite ends writing. The reason is io.EOF if there was no error. Only the first call has an effect.
func (p *pipe) closeWrite(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end == nil {
		p.end = reason
	}
	p.changed.Broadcast()
}

// abort drops unread bytes and fails both ends with reason. The first reason is kept.
func (p *pipe) abort(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken == nil {
		p.broken = reason
	}
	if p.buf != nil {
		p.release()
	}
	p.changed.Broadcast()
}

func (p *pipe) release() {
	buffers.Put(p.buf)
	p.buf, p.r, p.w = nil, 0, 0
}
