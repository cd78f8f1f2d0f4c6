package apistorage

import (
	"context"
	"fmt"
	"math"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// Get implements storage.Interface.
func (s *Storage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) (err error) {
	defer ensureReason(&err)
	ctx, span := s.span(ctx, "Get sqlstore", key)
	defer span.End()
	row, full, err := s.rowKey(key, false)
	if err != nil {
		return err
	}
	if err := s.awaitRevision(ctx, opts.ResourceVersion, 0); err != nil {
		return err
	}
	w := &walk{Storage: s}
	if named, _ := ctx.Value(exactKey{}).(int64); named != 0 {
		if w.query.Revision, err = s.store.WholeTransaction(ctx, named); err != nil {
			return ClientError(err)
		}
		if err := s.guard(ctx, row, w.query.Revision); err != nil {
			return err
		}
	}
	r, err := w.getOne(ctx, row)
	if err != nil {
		return err
	}
	if r == nil {
		if opts.IgnoreNotFound {
			return runtime.SetZeroValue(out)
		}
		return storage.NewKeyNotFoundError(full, 0)
	}
	if raw, ok := out.(*Raw); ok {
		return s.getRaw(ctx, r, full, raw)
	}
	return s.view(ctx, r, full, out)
}

type exactKey struct{}

// WithRevision returns a context whose gets return objects as they were at a revision. Storage.Get has no option for that.
func WithRevision(ctx context.Context, revision int64) context.Context {
	return context.WithValue(ctx, exactKey{}, revision)
}

// get reads one row. A key that no object can have, such as one that is not UTF-8, is not found, without a database access.
func (s *Storage) get(ctx context.Context, row string) (*sqlstore.Record, dialect.Position, error) {
	if !storable(row) {
		at, err := s.store.Position(ctx)
		return nil, at, ClientError(err)
	}
	r, at, err := s.store.Get(ctx, s.resource, row)
	return r, at, ClientError(err)
}

// futureRevisionTimeout is how long a read waits for a revision that does not exist yet, as kube-apiserver's watch cache does
// (API concepts, "Unavailable resource versions").
const futureRevisionTimeout = 3 * time.Second

// awaitRevision waits until the store has reached both resourceVersion, the oldest state that the client accepts, and revision,
// the one it requests; "" and 0 mean none. After futureRevisionTimeout it returns a TooLargeResourceVersion error.
func (s *Storage) awaitRevision(ctx context.Context, resourceVersion string, revision int64) error {
	wanted, err := s.versioner.ParseResourceVersion(resourceVersion)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	wanted = max(wanted, uint64(revision))
	if wanted == 0 {
		return nil
	}
	return Await(ctx, s.store, wanted)
}

// Await waits until a store has reached a revision that a client names. After futureRevisionTimeout it returns a TooLargeResourceVersion
// error.
func Await(ctx context.Context, store *sqlstore.Store, wanted uint64) error {
	if sqlstore.TransactionFrom(ctx) != nil {
		return nil // it reads a state of its own, whose revisions no state of the log has
	}
	waiting, cancel := context.WithTimeout(ctx, futureRevisionTimeout)
	defer cancel()
	if store.Await(waiting, int64(min(wanted, math.MaxInt64))) == nil {
		return nil
	}
	at, err := store.Position(ctx)
	if err == nil && wanted > uint64(at.Revision) {
		return storage.NewTooLargeResourceVersionError(wanted, uint64(at.Revision), retryAfterSeconds)
	}
	return ClientError(err)
}
