package transactions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/audit"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// again calls attempt of a transaction with that name, until it does not return sqlstore.ErrConflict.
func (r *REST) again(ctx context.Context, name string, attempt func() error) error {
	for n := 1; ; n++ {
		err := attempt()
		if err == nil {
			return nil
		}
		if err := r.unused(ctx, name); err != nil { // a client that got no answer has sent it twice, and the other one was committed meanwhile
			return err
		}
		if !errors.Is(err, sqlstore.ErrConflict) {
			return err
		}
		if n == attempts {
			return apierrors.NewConflict(resource, name, fmt.Errorf("others have changed its objects in each of %d attempts: nothing was written; try again", attempts))
		}
		select {
		case <-time.After(rand.N(firstPause << n)):
		case <-ctx.Done():
			return apistorage.ClientError(context.Cause(ctx))
		}
	}
}

// Committed is what a transaction has written.
type Committed struct {
	Name     string // of the transaction
	Writes   int    // if there are none, nothing was committed
	Revision int64  // of the last write
}

// Together runs work with a context whose writes are gathered, and commits them all or not at all, as a transaction whose name begins with
// prefix. If others change the same objects meanwhile, it runs work again, on the new state. An error of work is returned, and nothing is written.
func (r *REST) Together(ctx context.Context, prefix string, work func(context.Context) error) (*Committed, error) {
	done, err := r.Admit(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	c := &Committed{Name: prefix + utilrand.String(10)}
	return c, r.again(ctx, c.Name, func() error {
		gathering, err := r.Store.Begin(ctx, c.Name, r.Options.limits())
		if err != nil {
			return apistorage.ClientError(err)
		}
		defer gathering.End()
		gathering.AuditID = string(audit.GetAuditIDTruncated(ctx))
		if err := work(sqlstore.WithTransaction(ctx, gathering)); err != nil {
			return err
		}
		return r.commitWrites(ctx, c, gathering)
	})
}

// errNothing is the error of the record of a transaction that has written nothing.
var errNothing = errors.New("the transaction has no writes")

// commitWrites commits what was gathered, with a record that names each write.
func (r *REST) commitWrites(ctx context.Context, c *Committed, gathering *sqlstore.Transaction) error {
	now, author := inSeconds(time.Now()), sqlstore.AuthorFrom(ctx)
	made := Status{User: author.User, AuditID: author.AuditID, Time: now}
	first, err := gathering.Commit(ctx, now.Add(kept).UnixMilli(), func(writes []sqlstore.Gathered) ([]byte, error) {
		if c.Writes = len(writes); c.Writes == 0 {
			return nil, errNothing
		}
		return r.describe(&made, writes)
	})
	switch {
	case errors.Is(err, errNothing):
		return nil
	case errors.Is(err, sqlstore.ErrConflict):
		return err
	case err != nil: // it may have been committed
		found, unknown := r.record(ctx, c.Name)
		if unknown != nil || found == nil {
			return apistorage.ClientError(err)
		}
		first = found.Revision
	}
	c.Revision = first + int64(c.Writes)
	return nil
}

// describe returns the record of a transaction whose writes are no operations, and completes its status with them.
func (r *REST) describe(s *Status, writes []sqlstore.Gathered) ([]byte, error) {
	stored := record{}
	s.Operations, stored.Rows = r.results(writes)
	stored.Status = *s
	return json.Marshal(stored)
}

// results returns what becomes of writes, and which rows after the record of the transaction they are.
func (r *REST) results(writes []sqlstore.Gathered) (results []Result, rows []int64) {
	for i, w := range writes {
		kind, ok := r.Served.KindOf(schema.GroupResource{Group: w.Resource.Group, Resource: w.Resource.Name})
		if !ok { // it is no object of the API
			continue
		}
		rows = append(rows, int64(i)+1)
		results = append(results, Result{
			Verb: Verb(w.Operation), APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Namespace: w.Namespace, Name: w.Name, UID: w.UID,
		})
	}
	return results, rows
}
