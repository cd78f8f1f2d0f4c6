package datastore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/server/fleet"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/origin"
)

// Schemas are the databases of clusters in the host's Postgres database: a schema each. It implements fleet.Databases and fleet.Shared.
type Schemas struct {
	datastore *Datastore
	host      *postgres.Host // nil until the host's database is open
	opened    chan struct{}  // closed then
}

// NewSchemas returns the databases of clusters in a Postgres database, which are there once Datastore.Open has opened that.
func NewSchemas(d *Datastore) *Schemas {
	d.clusters = &Schemas{datastore: d, opened: make(chan struct{})}
	return d.clusters
}

// open opens the host's own database, with those of the clusters.
func (s *Schemas) open(ctx context.Context, d Datastore) (Engine, error) {
	host, err := postgres.OpenHost(ctx, d.postgres(), d.Timeout)
	if err != nil {
		return nil, err
	}
	s.host = host
	close(s.opened)
	return host, nil
}

// ready waits for the host's database.
func (s *Schemas) ready(ctx context.Context) error {
	select {
	case <-s.opened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Join implements fleet.Shared.
func (s *Schemas) Join(ctx context.Context, url string, lost func(id string)) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return errors.Join(s.host.Join(ctx, url, lost), s.host.Sweep(ctx))
}

// Owner implements fleet.Shared.
func (s *Schemas) Owner(ctx context.Context, id string) (string, error) { return s.host.Owner(ctx, id) }

// Holds implements fleet.Shared.
func (s *Schemas) Holds(id string) bool { return s.host.Holds(id) }

// make makes a database, a copy of another unless from is "", and returns the revision with which it begins.
func (s *Schemas) make(ctx context.Context, id, from string, fill func(*postgres.Engine) (int64, error)) (revision int64, err error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	made := false
	err = s.host.Make(ctx, id, from, func(e *postgres.Engine) (err error) {
		made = true
		revision, err = fill(e)
		return err
	})
	if err == nil && !made {
		revision, err = s.host.Revision(ctx, id)
	}
	return revision, missing(err)
}

// missing has the error of a database that is not there wrap fs.ErrNotExist.
func missing(err error) error {
	if errors.Is(err, postgres.ErrNoCluster) {
		return fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	}
	return err
}

// Create implements fleet.Databases. The first server to open the database stores the default objects.
func (s *Schemas) Create(ctx context.Context, id string) error {
	_, err := s.make(ctx, id, "", func(*postgres.Engine) (int64, error) { return 0, nil })
	return err
}

// Fork implements fleet.Databases.
func (s *Schemas) Fork(ctx context.Context, from, to string, at fleet.Moment) (int64, error) {
	return s.make(ctx, to, from, func(e *postgres.Engine) (int64, error) { return origin.Fork(ctx, e, origin.At(at)) })
}

// Restore implements fleet.Databases, with objects without history.
func (s *Schemas) Restore(ctx context.Context, backup, to string, at fleet.Moment) (int64, error) {
	return s.make(ctx, to, "", func(e *postgres.Engine) (int64, error) { return restoreObjects(ctx, e, backup, at) })
}

// restoreObjects fills an empty database with the objects of a backup, without their history.
func restoreObjects(ctx context.Context, e origin.Forked, backup string, at fleet.Moment) (int64, error) {
	remove := func() error { return nil }
	_, err := origin.Copy(ctx, e, backup, origin.At(at), func(ctx context.Context) (dialect.Reader, error) {
		switch dump, err := origin.IsPgDump(backup); {
		case err != nil:
			return nil, err
		case dump:
			return nil, fmt.Errorf("%s: %w", backup, origin.ErrPgDump)
		}
		current, done, err := sqlite.Current(ctx, backup)
		if err != nil {
			return nil, err
		}
		remove = done
		return sqlite.OpenReader(ctx, current)
	})
	if err = errors.Join(err, remove()); err != nil {
		return 0, err
	}
	return origin.Fork(ctx, e, origin.At{})
}

// Export implements fleet.Databases.
func (s *Schemas) Export(ctx context.Context, id, file string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	hosted, err := s.datastore.Hosted(ctx, id)
	if err != nil {
		return err
	}
	reader, err := hosted.OpenReader(ctx)
	if err != nil {
		return err
	}
	err = sqlite.Adopt(ctx, file, func(e *sqlite.Engine) error {
		_, err := origin.Transfer(ctx, e, reader)
		return err
	})
	return errors.Join(err, reader.Close())
}

// Import implements fleet.Databases.
func (s *Schemas) Import(ctx context.Context, id, file string) error {
	_, err := s.make(ctx, id, "", func(e *postgres.Engine) (int64, error) { return 0, importInto(ctx, e, file) })
	return err
}

// Open implements fleet.Databases.
func (s *Schemas) Open(ctx context.Context, id string, o sqlstore.Options) (*sqlstore.Store, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	owner, mine, err := s.host.Acquire(ctx, id)
	if err != nil {
		return nil, missing(err)
	}
	if !mine {
		return nil, &fleet.Elsewhere{URL: owner.URL}
	}
	engine, err := s.host.Open(id)
	if err != nil {
		return nil, err
	}
	return sqlstore.Open(ctx, engine, o)
}

// Remove implements fleet.Databases.
func (s *Schemas) Remove(ctx context.Context, id string) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.host.Drop(ctx, id)
}

// IDs implements fleet.Databases.
func (s *Schemas) IDs(ctx context.Context) ([]string, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return s.host.IDs(ctx)
}

// Bytes implements fleet.Databases.
func (s *Schemas) Bytes(ctx context.Context, id string) (int64, error) {
	if err := s.ready(ctx); err != nil {
		return 0, err
	}
	return s.host.Bytes(ctx, id)
}
