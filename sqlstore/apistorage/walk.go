package apistorage

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/sqlstore"
)

// walk reads the records of one list page by page, and passes those that match the selectors to accept, until there are enough or
// no more.
//
// Each page is read by one statement, at the revision of the first page, and passed on after that statement has ended. So neither
// slow decoding nor a slow client keeps a snapshot of the database open.
type walk struct {
	*Storage
	opts storage.ListOptions
	full string // the full key of the request
	// exactly is set for a list of an exact state; see isExact.
	exactly bool
	// query.Revision is the requested revision, and after the first page the one being read.
	query sqlstore.Query
	start cursor // where the list begins
	at    cursor // where the next page begins
	// accept keeps a record, or returns false if it does not match after all.
	accept func(*sqlstore.Record) (bool, error)

	accepted  int
	bytes     int  // of the values of all pages
	pageBytes int  // of the values of the current page
	more      bool // there may be records after this page

	continueToken string
	remaining     *int64
}

// collection reads the records under query.Prefix from w.at on, and determines the list's metadata about the remaining ones. It
// calls pageRead after each page.
func (w *walk) collection(ctx context.Context, pageRead func(context.Context) error) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	for w.hasNext() {
		if err := w.page(ctx); err != nil {
			return err
		}
		if err := pageRead(ctx); err != nil {
			return err
		}
	}
	return w.finish(ctx)
}

// begin prepares the walk of a collection.
func (w *walk) begin(ctx context.Context) error {
	if !storable(w.query.Prefix) { // no object can have such a key
		at, err := w.store.Position(ctx)
		w.query.Revision = at.Revision
		return ClientError(err)
	}
	w.query.Terms = w.terms(&w.opts.Predicate)
	w.more = true
	return nil
}

// hasNext reports whether another page must be read.
func (w *walk) hasNext() bool {
	limit := w.opts.Predicate.Limit
	return w.more && (limit <= 0 || int64(w.accepted) < limit)
}

// page reads a page: as many records as are still needed, or twice as many as the previous page while most do not match.
func (w *walk) page(ctx context.Context) error {
	limit := w.opts.Predicate.Limit
	if limit > 0 {
		w.query.Limit = int(min(max(limit-int64(w.accepted), 2*int64(w.query.Limit)), sqlstore.PageRecords))
	}
	w.query.From, w.query.After = w.at.from, w.at.after
	page, err := w.store.Page(ctx, w.query)
	if errors.Is(err, sqlstore.ErrCompacted) {
		return w.expired()
	}
	if err != nil {
		return ClientError(err)
	}
	if w.query.Revision == 0 {
		w.query.Revision = page.Revision
	}
	w.query.Retained = false // what has begun is read to its end
	w.more, w.pageBytes = page.More, 0
	for _, r := range page.Records {
		if limit > 0 && int64(w.accepted) == limit {
			w.more = true
			break
		}
		if err := ctx.Err(); err != nil {
			return ClientError(err)
		}
		w.at = cursor{after: r.Key}
		w.pageBytes += len(r.Value)
		if !w.mayMatch(r) {
			continue
		}
		ok, err := w.accept(r)
		if err != nil {
			return err
		}
		if ok {
			w.accepted++
		}
	}
	return nil
}

// finish makes the continue token and counts the remaining records of a walk that ended at its limit. With a selector it makes a
// token if there are more objects at all, matching or not, like kube-apiserver.
func (w *walk) finish(ctx context.Context) error {
	pred := &w.opts.Predicate
	if pred.Limit <= 0 || int64(w.accepted) < pred.Limit {
		return nil
	}
	rest := sqlstore.Query{Resource: w.resource, Prefix: w.query.Prefix, Revision: w.query.Revision, After: w.at.after}
	if !pred.Empty() {
		rest.Limit = 1
	}
	n, err := w.store.Count(ctx, rest)
	switch {
	case errors.Is(err, sqlstore.ErrCompacted):
		// There may be more, and the next page will fail. This one need not.
	case err != nil || n == 0:
		return ClientError(err)
	case pred.Empty():
		// Only a list without selectors says how many remain (API concepts, "Retrieving large results sets in chunks").
		w.remaining = &n
	}
	w.continueToken, err = w.token(w.at, w.query.Revision)
	return err
}

// single reads the one object at key, as a list.
func (w *walk) single(ctx context.Context, key string) error {
	r, err := w.getOne(ctx, key)
	if err != nil || r == nil || !w.mayMatch(r) {
		return err
	}
	_, err = w.accept(r)
	return err
}

// getOne reads the record at key, at the requested revision or else at the newest, which it sets. It returns nil if there is
// none.
func (w *walk) getOne(ctx context.Context, key string) (*sqlstore.Record, error) {
	if w.query.Revision == 0 {
		r, at, err := w.get(ctx, key)
		w.query.Revision = at.Revision
		return r, err
	}
	if !storable(key) {
		return nil, nil
	}
	page, err := w.store.Page(ctx, sqlstore.Query{Resource: w.resource, Revision: w.query.Revision, Retained: w.query.Retained, Exactly: &key})
	if errors.Is(err, sqlstore.ErrCompacted) {
		return nil, apierrors.NewResourceExpired(listExpired)
	}
	if err != nil || len(page.Records) == 0 {
		return nil, ClientError(err)
	}
	return page.Records[0], nil
}

// undecided reports whether the object decides if it matches.
func (w *walk) undecided(r *sqlstore.Record) bool {
	_, decided := w.decide(&w.opts.Predicate, r)
	return !decided
}

// mayMatch reports whether r matches, or is undecided.
func (w *walk) mayMatch(r *sqlstore.Record) bool {
	matched, decided := w.decide(&w.opts.Predicate, r)
	return matched || !decided
}
