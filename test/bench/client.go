package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

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
