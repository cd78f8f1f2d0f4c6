package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// dialer makes clients for one server.
type dialer struct {
	config   *rest.Config
	received *atomic.Int64 // bytes, by the clients that fail over
}

// as returns a dialer of another user, whose clients connect to the first address that accepts a connection.
func (d *dialer) as(token string, addresses []string) *dialer {
	config := rest.CopyConfig(d.config)
	config.BearerToken, config.Dial = token, failover(addresses, d.received)
	return &dialer{config, d.received}
}

func newDialer(kubeconfig string) (*dialer, error) {
	config, err := loadKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	return &dialer{config: config, received: &atomic.Int64{}}, nil
}

// client is one HTTP/2 connection that sends prepared bodies and parses responses no more than necessary, so that the load
// generator uses little CPU. It is for one goroutine.
type client struct {
	http   *http.Client
	base   string
	token  string
	answer bytes.Buffer // of the last request
}

// dial returns a connected client, so that no measurement includes the handshake. Responses are not compressed unless a request
// asks for it, since that cost would hide all others.
func (d *dialer) dial(ctx context.Context) (*client, error) {
	tls, err := rest.TLSConfigFor(d.config)
	if err != nil {
		return nil, err
	}
	c := &client{
		http: &http.Client{Transport: &http.Transport{
			TLSClientConfig:    tls,
			DialContext:        d.config.Dial,
			ForceAttemptHTTP2:  true,
			DisableCompression: true,
			IdleConnTimeout:    time.Minute,
		}},
		base:  d.config.Host,
		token: d.config.BearerToken,
	}
	return c, c.do(ctx, get("/version"))
}

// dialAll returns n clients.
func (d *dialer) dialAll(ctx context.Context, n int) (clients, error) {
	all := make(clients, 0, n)
	for range n {
		c, err := d.dial(ctx)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// clients are the connections of one load.
type clients []*client

func (all clients) close() {
	for _, c := range all {
		c.http.CloseIdleConnections()
	}
}

// send sends a request and returns the response, whose body the caller closes. Any status but 2xx is a *statusError.
func (c *client) send(ctx context.Context, r request) (*http.Response, error) {
	request, err := r.http(ctx, c.base)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		text, readErr := io.ReadAll(io.LimitReader(response.Body, 2048))
		return nil, errors.Join(&statusError{code: response.StatusCode, request: r.method + " " + r.path, text: string(text)}, readErr, response.Body.Close())
	}
	return response, nil
}

// retryAfter is how long a client waits before it retries a request that the server could not serve yet.
const retryAfter = 20 * time.Millisecond

// whenServed repeats a request as long as the server can't serve its resource yet: it answers 404 until it has heard of a definition,
// and kube-apiserver 429 until its cache of a resource is filled.
func whenServed(ctx context.Context, pause time.Duration, request func() error) error {
	for {
		err := request()
		if !isStatus(err, http.StatusNotFound) && !isStatus(err, http.StatusTooManyRequests) {
			return err
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// do sends a request and keeps the response in c.answer.
func (c *client) do(ctx context.Context, r request) error {
	response, err := c.send(ctx, r)
	if err != nil {
		return err
	}
	c.answer.Reset()
	_, err = c.answer.ReadFrom(response.Body)
	return errors.Join(err, response.Body.Close())
}

// discard sends a request and returns the length of the response, without keeping it.
func (c *client) discard(ctx context.Context, r request) (int64, error) {
	response, err := c.send(ctx, r)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, response.Body)
	return n, errors.Join(err, response.Body.Close())
}

// statusError is a response that is not 2xx.
type statusError struct {
	code    int
	request string
	text    string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: %d %s", e.request, e.code, e.text)
}

// isStatus reports whether the error is a response with this code.
func isStatus(err error, code int) bool {
	var status *statusError
	return errors.As(err, &status) && status.code == code
}

// Media types of bodies.
const (
	mediaJSON          = "application/json"
	mediaProtobuf      = "application/vnd.kubernetes.protobuf"
	mediaProtobufWatch = "application/vnd.kubernetes.protobuf;stream=watch"
	mediaTable         = "application/json;as=Table;g=meta.k8s.io;v=v1"

	mediaMergePatch     = "application/merge-patch+json"
	mediaStrategicPatch = "application/strategic-merge-patch+json"
	mediaApplyPatch     = "application/apply-patch+yaml"
)

// request is what a client sends.
type request struct {
	method, path string
	accept       string // the media type of the response; JSON if empty
	encoding     string // the compression of the response; none if empty
	content      string // the media type of the body; JSON if empty
	body         []byte
}

func get(path string) request { return request{method: http.MethodGet, path: path} }
func post(path string, body []byte) request {
	return request{method: http.MethodPost, path: path, body: body}
}
func put(path string, body []byte) request {
	return request{method: http.MethodPut, path: path, body: body}
}

func patch(path, content string, body []byte) request {
	return request{method: http.MethodPatch, path: path, content: content, body: body}
}

// as returns the request for a response of this media type.
func (r request) as(accept string) request {
	r.accept = accept
	return r
}

// gzip returns the request for a compressed response.
func (r request) gzip() request {
	r.encoding = "gzip"
	return r
}

// http returns the request to the server at base.
func (r request) http(ctx context.Context, base string) (*http.Request, error) {
	h, err := http.NewRequestWithContext(ctx, r.method, base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	h.Header.Set("Accept", cmp.Or(r.accept, mediaJSON))
	if r.encoding != "" {
		h.Header.Set("Accept-Encoding", r.encoding)
	}
	if r.body != nil {
		h.Header.Set("Content-Type", cmp.Or(r.content, mediaJSON))
	}
	return h, nil
}

// listCached makes the server answer a list from its memory.
var listCached = metav1.ListOptions{ResourceVersion: "0"}

// persistAttempts and persistPause define for how long a client retries if a server does not respond.
const (
	persistAttempts = 20
	persistPause    = 250 * time.Millisecond
)

// persist retries a request that has not succeeded and whose response may have been lost. What already exists counts as
// created.
func persist(ctx context.Context, request func() error) (err error) {
	for attempt := range persistAttempts {
		if err = request(); err == nil || attempt > 0 && apierrors.IsAlreadyExists(err) {
			return nil
		}
		if err := wait(ctx, persistPause); err != nil {
			return err
		}
	}
	return err
}

// untilTimeout limits the wait of until, and untilPause is the pause between its checks.
const (
	untilTimeout = 5 * time.Minute
	untilPause   = 250 * time.Millisecond
)

// until waits until holds returns true. If that takes too long, its error says why.
func until(ctx context.Context, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, untilTimeout)
	defer cancel()
	for {
		ok, err := holds()
		if ok {
			return nil
		}
		if waited := wait(ctx, untilPause); waited != nil {
			return fmt.Errorf("waiting until %s: %w (%v)", what, waited, err)
		}
	}
}
