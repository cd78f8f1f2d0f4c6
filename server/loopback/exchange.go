package loopback

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// PanicError is the error of a request whose handler panicked.
type PanicError struct {
	// Value is the argument of panic.
	Value any
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("loopback: the handler panicked: %v", e.Value)
}

// Unwrap returns the panic's value if it is an error, so that errors.Is(err, http.ErrAbortHandler) works.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// exchange is one request and its response. To the handler it is the http.ResponseWriter.
type exchange struct {
	ctx    context.Context // the handler's
	cancel context.CancelFunc
	noBody bool // the response to HEAD

	header http.Header // the handler's, until decided
	body   *pipe

	decide  sync.Once     // sets status and sent, or err
	decided chan struct{} // closed after that
	status  int
	sent    http.Header
	err     error
}

// Filters of k8s.io/apiserver wrap a writer so that it can still flush only if it also is a CloseNotifier.
var _ interface {
	http.ResponseWriter
	http.Flusher
	//lint:ignore SA1019 see above
	http.CloseNotifier
} = &exchange{}

func newExchange(ctx context.Context, cancel context.CancelFunc, req *http.Request) *exchange {
	return &exchange{
		ctx:     ctx,
		cancel:  cancel,
		noBody:  req.Method == http.MethodHead,
		header:  http.Header{},
		body:    newPipe(),
		decided: make(chan struct{}),
	}
}

// serve runs the handler to its end and then ends the response.
func (e *exchange) serve(h http.Handler, r *http.Request) {
	var failure error = io.EOF
	defer func() {
		if v := recover(); v != nil {
			failure = &PanicError{Value: v}
			e.decide.Do(func() { // RoundTrip returns the error, if nothing has been sent yet
				e.err = failure
				close(e.decided)
			})
		} else {
			e.WriteHeader(http.StatusOK) // the response if the handler wrote nothing
		}
		e.body.closeWrite(failure)
	}()
	h.ServeHTTP(e, r)
}

// abort ends the exchange because the client has disconnected: reads and writes of the body return err.
func (e *exchange) abort(err error) {
	e.body.abort(err)
	e.cancel()
}

// Header returns the headers to send; changes after the first write have no effect.
func (e *exchange) Header() http.Header { return e.header }

// WriteHeader decides the response. Informational (1xx) codes are dropped, since client-go ignores them.
func (e *exchange) WriteHeader(code int) {
	if code >= 100 && code < 200 {
		return
	}
	e.decide.Do(func() {
		e.status, e.sent = code, e.header.Clone()
		close(e.decided)
	})
}

// Write sends p, waiting while the client is behind. It returns an error once the client has disconnected.
func (e *exchange) Write(p []byte) (int, error) {
	e.WriteHeader(http.StatusOK)
	if !bodyAllowed(e.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if e.noBody {
		return len(p), nil
	}
	return e.body.Write(p)
}

// Flush sends the headers. Everything that was written can be read already.
func (e *exchange) Flush() { e.WriteHeader(http.StatusOK) }

// CloseNotify returns a channel that gets one value when the request is over. New code uses the request's context.
func (e *exchange) CloseNotify() <-chan bool {
	gone := make(chan bool, 1)
	context.AfterFunc(e.ctx, func() { gone <- true })
	return gone
}

// response returns the client's response once the exchange is decided.
func (e *exchange) response(req *http.Request) (*http.Response, error) {
	if e.err != nil {
		return nil, e.err
	}
	resp := &http.Response{
		Status:        strconv.Itoa(e.status) + " " + http.StatusText(e.status),
		StatusCode:    e.status,
		Proto:         "HTTP/2.0",
		ProtoMajor:    2,
		Header:        e.sent,
		ContentLength: -1,
		Body:          &responseBody{exchange: e},
		Request:       req,
	}
	if n, err := strconv.ParseInt(e.sent.Get("Content-Length"), 10, 64); err == nil && n >= 0 {
		resp.ContentLength = n
	}
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	return resp, nil
}

// responseBody is the client's end of the body.
type responseBody struct{ exchange *exchange }

func (b *responseBody) Read(p []byte) (int, error) { return b.exchange.body.Read(p) }

// Close ends the handler: it makes its context done and its writes fail.
func (b *responseBody) Close() error {
	b.exchange.abort(errBodyClosed)
	return nil
}

// bodyAllowed implements RFC 9110, sections 15.3.5 and 15.4.5: responses with these codes have no content.
func bodyAllowed(status int) bool {
	return status != http.StatusNoContent && status != http.StatusNotModified
}

// longWatches is a transport whose watches last that long, whatever their clients ask for. client-go's informers watch again every five to
// ten minutes.
type longWatches struct {
	transport http.RoundTripper
	seconds   string
}

// RoundTrip implements http.RoundTripper.
func (l longWatches) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.RawQuery, "watch=") {
		r = r.Clone(r.Context())
		query := r.URL.Query()
		query.Set("timeoutSeconds", l.seconds)
		r.URL.RawQuery = query.Encode()
	}
	return l.transport.RoundTrip(r)
}

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
