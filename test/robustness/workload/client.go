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
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/robustness/history"
)

const (
	// hastyTimeout is how long a hasty client waits for an answer, requestTimeout how long the others do, who ask when
	// nothing fails, though the machine may be busy.
	hastyTimeout   = 5 * time.Second
	requestTimeout = 30 * time.Second
	// pause is how long a client at the most leaves the servers alone between two requests, and retryPause when one failed.
	pause      = 20 * time.Millisecond
	retryPause = 150 * time.Millisecond
)

// endpoint is a server as one client reaches it, by connections of its own.
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
	// hasty says that it sometimes hardly waits for an answer.
	hasty bool
	// refusals takes answers that a request of this client can't have deserved.
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

// chance returns true in so many of a hundred cases.
func (c *client) chance(percent int) bool { return c.random.IntN(100) < percent }

// rest lets some time pass: a little between two requests, more after one that failed.
func (c *client) rest(ctx context.Context, failed bool) {
	if failed {
		c.wait(ctx, retryPause/2, retryPause)
	} else {
		c.wait(ctx, 0, pause)
	}
}

// wait lets a time between the two pass.
func (c *client) wait(ctx context.Context, from, to time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(from + time.Duration(c.random.Int64N(int64(to-from)))):
	}
}

// patience is how long to wait for an answer. Requests of hasty clients end at every point of their way.
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

// open sends a request. The caller reads and closes the answer's body.
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

// send sends a request and decodes the answer into result. An answer of another code than 200 and 201 is an error, of the
// type *refusal.
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

// refusal is an answer that says no.
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

// undeserved tells whether it says that the request was wrong, or is an error that the server has no name for.
func (r *refusal) undeserved() bool {
	switch r.code {
	case http.StatusNotFound, http.StatusConflict, http.StatusGone, http.StatusTooManyRequests,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	return true
}

// outcome says what an error, or its absence, tells of a request.
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

// isGone tells whether an answer says that what was asked for is forgotten.
func isGone(err error) bool {
	var refused *refusal
	return errors.As(err, &refused) && refused.code == http.StatusGone
}
