package loopback

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/user"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/rest"
)

// ErrShutdown is returned for requests made after [Transport.Shutdown].
var ErrShutdown = errors.New("loopback: the API server has stopped serving in-process requests")

// remoteAddr is the caller's address for handlers and the audit log. Port 0 distinguishes it from a real connection.
const remoteAddr = "127.0.0.1:0"

// Transport is an http.RoundTripper that serves requests with a handler in the same process.
// Make it with [New]. It is safe for concurrent use.
type Transport struct {
	// WatchTimeout is how long watches last, whatever clients ask for; 0 leaves it to them. Set it before making configurations.
	WatchTimeout time.Duration
	// Join returns a handler's context with what it shall have of the values of the request's, nil for nothing. Set it before the first
	// request.
	Join func(handler, request context.Context) context.Context

	handler atomic.Pointer[http.Handler]
	served  chan struct{} // closed once there is a handler

	// base is the parent of all handlers' contexts; stop ends it.
	base context.Context
	stop context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // grows only under mu while !closed, so that Shutdown may wait on it
}

// New returns a Transport whose requests wait until SetHandler is called. Thus clients can be built, and informers and controllers
// started, before the handler chain, which is itself built with those clients.
//
// Requests have the values of ctx.
func New(ctx context.Context) *Transport {
	base, stop := context.WithCancel(withIdentity(ctx, &loopbackUser))
	return &Transport{base: base, stop: stop, served: make(chan struct{})}
}

// SetHandler makes h serve waiting requests and all later ones.
func (t *Transport) SetHandler(h http.Handler) {
	if t.handler.Swap(&h) == nil {
		close(t.served)
	}
}

// Shutdown rejects new requests, cancels the contexts of running ones and waits until their handlers have returned. If ctx ends
// first, it returns the error of ctx; the handlers are then cancelled but still running.
func (t *Transport) Shutdown(ctx context.Context) error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.stop()

	idle := make(chan struct{})
	go func() {
		t.running.Wait()
		close(idle)
	}()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("loopback: in-process requests are still running: %w", ctx.Err())
	}
}

// RoundTrip runs the handler and returns as soon as it has decided the response's headers, while the body is still being written.
//
// The handler's context ends when the request's context does, when the response's body is closed, when the handler returns, and at
// Shutdown. It has none of the request context's values but those of Join: handlers often call the API with their own context, and like over a
// network, the inner request must not see the outer one's user, audit event or request info.
//
// Errors: [ErrShutdown]; the request context's error; a [*PanicError] if the handler panics before it has sent headers (after
// that, reading the body returns it).
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.roundTrip(t.base, req)
}

// roundTrip is RoundTrip for the user in base.
func (t *Transport) roundTrip(base context.Context, req *http.Request) (*http.Response, error) {
	handler, err := t.begin(req.Context())
	if err != nil {
		closeBody(req)
		return nil, err
	}
	if t.Join != nil {
		base = t.Join(base, req.Context())
	}
	ctx, cancel := context.WithCancel(base)
	ex := newExchange(ctx, cancel, req)
	clientGone := context.AfterFunc(req.Context(), func() { ex.abort(req.Context().Err()) })

	go func() {
		defer t.running.Done()
		defer cancel()
		defer clientGone()
		defer closeBody(req)
		ex.serve(handler, serverRequest(ctx, req))
	}()

	select {
	case <-ex.decided:
		return ex.response(req)
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
}

// begin waits for the handler, counts the request as running, and returns the handler.
func (t *Transport) begin(client context.Context) (http.Handler, error) {
	select {
	case <-t.served:
	case <-client.Done():
	case <-t.base.Done():
	}
	if err := client.Err(); err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrShutdown
	}
	t.running.Add(1)
	return *t.handler.Load(), nil
}

// serverRequest returns req as a server would have parsed it. A RoundTripper must not change req, and filters delete headers
// (Authorization) and replace the body, so nothing mutable is shared.
func serverRequest(ctx context.Context, req *http.Request) *http.Request {
	u := &url.URL{
		Path:       req.URL.Path,
		RawPath:    req.URL.RawPath,
		ForceQuery: req.URL.ForceQuery,
		RawQuery:   req.URL.RawQuery,
	}
	if u.Path == "" {
		u.Path = "/"
	}
	r := &http.Request{
		Method:        req.Method,
		URL:           u,
		RequestURI:    u.RequestURI(),
		Proto:         "HTTP/2.0",
		ProtoMajor:    2,
		Header:        req.Header.Clone(),
		Body:          req.Body,
		ContentLength: req.ContentLength,
		Host:          req.Host,
		RemoteAddr:    remoteAddr,
	}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	if r.Host == "" {
		r.Host = req.URL.Host
	}
	switch {
	case r.Body == nil:
		r.Body, r.ContentLength = http.NoBody, 0
	case r.ContentLength == 0 && r.Body != http.NoBody:
		r.ContentLength = -1 // to a client 0 means unknown, to a server it means empty
	}
	return r.WithContext(ctx)
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		// The request has ended, so there is no caller to report an error to. net/http ignores it too.
		_ = req.Body.Close()
	}
}

// host is a name for URLs only, never looked up; ".invalid" is reserved for this (RFC 6761, section 6.4).
const host = "http://loopback.invalid"

// Config returns a new client-go configuration whose requests go through t as the loopback user, without a rate limit. The caller
// may change it: usually ContentType and UserAgent, or Impersonate for a client with fewer permissions. Copies, including those
// of rest.AnonymousClientConfig, keep the transport and therefore the identity.
func (t *Transport) Config() *rest.Config {
	return t.configOf(t)
}

// ConfigOf returns a configuration like Config whose requests are those of another user, with the name and the groups, to which it
// adds system:authenticated. All its clients share t.
func (t *Transport) ConfigOf(name string, groups ...string) *rest.Config {
	who := &user.DefaultInfo{Name: name, Groups: append(slices.Clip(groups), user.AllAuthenticated)}
	return t.configOf(acting{t, withIdentity(t.base, who)})
}

// ConfigAs returns a configuration like Config whose requests are those of a user who has been authenticated already. The handler's
// contexts have what with adds to one.
func (t *Transport) ConfigAs(u user.Info, with func(context.Context) context.Context) *rest.Config {
	who := &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: slices.Clone(u.GetGroups()), Extra: maps.Clone(u.GetExtra())}
	return t.configOf(acting{t, with(withIdentity(t.base, who))})
}

func (t *Transport) configOf(transport http.RoundTripper) *rest.Config {
	if t.WatchTimeout > 0 {
		transport = longWatches{transport, strconv.Itoa(int(t.WatchTimeout / time.Second))}
	}
	config := &rest.Config{Host: host, Transport: transport, QPS: -1}
	// Without a ContentType, clients of built-in kinds use protobuf. With this gate the others would use CBOR, which client-go's
	// discovery can't read.
	if gates := clientfeatures.FeatureGates(); gates.Enabled(clientfeatures.ClientsAllowCBOR) && gates.Enabled(clientfeatures.ClientsPreferCBOR) {
		config.ContentType = runtime.ContentTypeJSON
	}
	return config
}

// acting sends requests of the user in base.
type acting struct {
	transport *Transport
	base      context.Context
}

// RoundTrip is Transport's, as the user.
func (a acting) RoundTrip(req *http.Request) (*http.Response, error) {
	return a.transport.roundTrip(a.base, req)
}
