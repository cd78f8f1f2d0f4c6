package main

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/sqlstore"
)

// updateDirectly makes the updates through the store alone: the server is stopped, and this process commits, compacts and
// shrinks in its place. Each update writes the same value again.
func (s *session) updateDirectly(ctx context.Context) (err error) {
	if err := s.server.Stop(); err != nil {
		return err
	}
	engine, err := openEngine(ctx, s.server.Datastore)
	if err != nil {
		return err
	}
	objects, err := churned(ctx, engine)
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	store, err := sqlstore.Open(ctx, engine, sqlstore.Options{Retention: s.retention})
	if err != nil {
		return err
	}
	if err := errors.Join(s.write(ctx, store, objects), store.Close()); err != nil {
		return err
	}
	return s.server.Restart(ctx)
}

// write runs writers that each update a share of the objects in turn.
func (s *session) write(ctx context.Context, store *sqlstore.Store, objects []*sqlstore.Write) error {
	const writers = 32
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var done atomic.Int64
	var all sync.WaitGroup
	for first := range writers {
		all.Go(func() {
			for i := first; ctx.Err() == nil; i += writers {
				if i >= len(objects) {
					i = first
				}
				n := done.Add(1)
				if n > int64(s.sizes.Updates) {
					return
				}
				w := objects[i]
				revision, err := store.Write(ctx, w)
				if err != nil {
					cancel(err)
				}
				w.Previous = &sqlstore.Record{Revision: revision, Key: w.Key, Labels: w.Labels, Fields: w.Fields, Value: w.Value}
				if n%100_000 == 0 {
					progress("%s: %d of %d updates in the store", s.server.Name, n, s.sizes.Updates)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// openEngine opens the database of a stopped server.
func openEngine(ctx context.Context, datastore string) (dialect.Engine, error) {
	if path, ok := strings.CutPrefix(datastore, "sqlite://"); ok {
		return sqlite.Open(ctx, path)
	}
	return postgres.Open(ctx, datastore)
}

// churned returns the objects as updates of themselves.
func churned(ctx context.Context, engine dialect.Engine) (objects []*sqlstore.Write, err error) {
	const live = "SELECT id, api_group, resource, key, namespace, name, uid, coalesce(expires_at, 0), labels, fields, value " +
		"FROM log WHERE replaced_by IS NULL AND namespace = '" + namespace + "' AND resource IN ('leases', 'events', 'pods') ORDER BY name"
	err = engine.Query(ctx, live, nil, func(row dialect.Row) error {
		r := &sqlstore.Record{}
		w := &sqlstore.Write{Operation: dialect.Update, Previous: r}
		err := row.Scan(&r.Revision, &w.Resource.Group, &w.Resource.Name, &w.Key, &w.Namespace, &w.Name, &w.UID, &w.ExpiresAt, &w.Labels, &w.Fields, &w.Value)
		r.Key, r.Labels, r.Fields, r.Value = w.Key, w.Labels, w.Fields, w.Value
		objects = append(objects, w)
		return err
	})
	if err == nil && len(objects) != churnObjects {
		err = errors.New("the database does not have the created objects")
	}
	return objects, err
}
