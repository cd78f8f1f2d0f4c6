package transaction

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// Open is a transaction that is open for requests of any clients of the same user: see Config. Their writes are seen by its own reads alone
// until Commit. Reads of what it has not written are as of its begin, and resourceVersions in it end with it. It can't watch. Only the server at
// which it was opened knows it.
type Open struct {
	// Until is when the server drops it. It also does so after a minute without any request; Get counts as one.
	Until time.Time

	t *Transaction
}

// Open opens the transaction, which must have no operations, for so long; 0 is for 10 minutes. It then has to be committed or dropped.
func (t *Transaction) Open(ctx context.Context, within time.Duration) (*Open, error) {
	sent := *t
	sent.spec.Stage = "Open"
	if within > 0 {
		sent.spec.OpenWithin = within.String()
	}
	result, err := sent.once(ctx)
	if err != nil {
		return nil, err
	}
	o := &Open{t: t}
	if result.OpenUntil != nil {
		o.Until = result.OpenUntil.Time
	}
	return o, nil
}

// once sends a transaction that can't be repeated.
func (t *Transaction) once(ctx context.Context) (*Result, error) {
	body, err := t.body()
	if err != nil {
		return nil, err
	}
	return t.post(ctx, body)
}

// Config returns a copy of a configuration whose requests belong to the transaction. It must be for the same user, and lead to the same server.
func (o *Open) Config(config *rest.Config) *rest.Config {
	own := rest.CopyConfig(config)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return joining{next, o.t.name} })
	return own
}

// joining gives requests the header of a transaction.
type joining struct {
	next http.RoundTripper
	name string
}

// RoundTrip implements http.RoundTripper.
func (j joining) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(Header, j.name)
	return j.next.RoundTrip(r)
}

// Commit commits what the requests have written. After an error that is no UnknownError, nothing was written. IsConflict is true if others have
// changed its objects since it was opened; all of it must then be done again.
func (o *Open) Commit(ctx context.Context) (*Result, error) {
	t := *o.t
	t.spec, t.ConfirmWithin = spec{Stage: "Commit"}, 0 // which was said when it was opened
	result, err := t.once(ctx)
	if err == nil || !lost(err) {
		return result, err
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) { // it is committed already, or never will be once the server does not have it any more
		found, asked := o.t.client.Get(ctx, o.t.name)
		switch {
		case asked == nil && found.OpenUntil == nil:
			return found, nil
		case asked == nil: // the request did not arrive
			if result, err = t.once(ctx); err == nil || !lost(err) {
				return result, err
			}
		}
		if pause == longestPause || ctx.Err() != nil {
			return nil, &UnknownError{o.t.name, err}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// Drop drops what the requests have written.
func (o *Open) Drop(ctx context.Context) error {
	t := *o.t
	t.spec, t.ConfirmWithin = spec{Stage: "Drop"}, 0
	_, err := t.once(ctx)
	if apierrors.IsGone(err) {
		return nil
	}
	return err
}
