package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/robustness/history"
)

const (
	// hastyTimeout is how long a hasty client waits for a response, requestTimeout how long the others do, which run when
	// nothing fails, though the machine may be busy.
	hastyTimeout   = 5 * time.Second
	requestTimeout = 30 * time.Second
	// pause is the longest time between two requests of a client, retryPause that after a failed one.
	pause      = 20 * time.Millisecond
	retryPause = 150 * time.Millisecond
)

// endpoint is a server, with a client's own connections to it.
type endpoint struct {
	url  string
	http *http.Client
}

// client is one client. It is for one goroutine.
type client struct {
	id        int
	random    *rand.Rand
	recorder  *history.Recorder
	endpoints []endpoint
	marks     int
	// transactions counts those that it made.
	transactions int
	// within has a revision within the last transaction.
	within *atomic.Uint64
	// hasty is true if it sometimes hardly waits for a response.
	hasty bool
	// refusals is called with error responses that no request of this client should get.
	refusals func(error)
}

func newEndpoint(config *rest.Config) (endpoint, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return endpoint{}, err
	}
	return endpoint{config.Host, &http.Client{Transport: &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: true}}}, nil
}

// anywhere returns a random server.
func (c *client) anywhere() int { return c.random.IntN(len(c.endpoints)) }

// chance returns true with the probability percent.
func (c *client) chance(percent int) bool { return c.random.IntN(100) < percent }

// rest waits: a little between two requests, longer after one that failed.
func (c *client) rest(ctx context.Context, failed bool) {
	if failed {
		c.wait(ctx, retryPause/2, retryPause)
	} else {
		c.wait(ctx, 0, pause)
	}
}

// wait waits for a random time between the two.
func (c *client) wait(ctx context.Context, from, to time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(from + time.Duration(c.random.Int64N(int64(to-from)))):
	}
}

// patience is how long to wait for a response. Requests of hasty clients are canceled at any stage.
func (c *client) patience() time.Duration {
	switch {
	case c.hasty && c.chance(5):
		return time.Duration(c.random.Int64N(int64(30 * time.Millisecond)))
	case c.hasty:
		return hastyTimeout
	default:
		return requestTimeout
	}
}

// open sends a request. The caller reads and closes the response body.
func (c *client) open(ctx context.Context, server int, method, path, mediaType string, body any) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.endpoints[server].url+path, reader)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", mediaType)
	}
	return c.endpoints[server].http.Do(request)
}

// send sends a request and decodes the response into result. A response with a code other than 200 and 201 is an error of type
// *refusal.
func (c *client) send(server int, method, path, mediaType string, body, result any) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.patience())
	defer cancel()
	response, err := c.open(ctx, server, method, path, mediaType, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode == http.StatusOK || response.StatusCode == http.StatusCreated {
		return json.Unmarshal(text, result)
	}
	refused := newRefusal(response.StatusCode, text)
	if refused.undeserved() {
		c.refusals(fmt.Errorf("%s %s by client %d at server %d: %w", method, path, c.id, server, refused))
	}
	return refused
}

// refusal is an error response.
type refusal struct {
	code   int
	status metav1.Status
}

func newRefusal(code int, body []byte) *refusal {
	r := &refusal{code: code}
	if err := json.Unmarshal(body, &r.status); err != nil {
		r.status.Message = string(body)
	}
	return r
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%d %s: %s", r.code, r.status.Reason, r.status.Message)
}

// undeserved reports whether it blames the request, or is an internal error of the server.
func (r *refusal) undeserved() bool {
	switch r.code {
	case http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusTooManyRequests,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return true
}

// outcome returns the outcome of a request, given its error or nil.
func outcome(err error) history.Outcome {
	var refused *refusal
	var network *net.OpError
	switch {
	case err == nil:
		return history.Done
	case errors.As(err, &refused):
		switch {
		case refused.code == http.StatusNotFound && refused.status.Reason == metav1.StatusReasonNotFound:
			return history.Absent
		case refused.status.Reason == metav1.StatusReasonAlreadyExists:
			return history.Exists
		case refused.status.Reason == metav1.StatusReasonConflict:
			return history.Conflict
		}
		return history.Unknown
	case errors.As(err, &network) && network.Op == "dial":
		return history.Unsent
	}
	return history.Unknown
}

// isGone reports whether a response says that the requested revision is compacted.
func isGone(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) && refused.code == http.StatusGone
}
