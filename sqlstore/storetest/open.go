// Package storetest is the suite of tests that every engine under the log has
// to pass, and the means to open a log on each.
package storetest

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// Opener prepares an empty database for t and returns what opens it, as often
// as is wanted.
type Opener func(t testing.TB) func(ctx context.Context) (dialect.Engine, error)

// SQLite is the Opener of a file in a folder of t.
func SQLite(t testing.TB) func(context.Context) (dialect.Engine, error) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	return func(ctx context.Context) (dialect.Engine, error) { return sqlite.Open(ctx, path) }
}

// Postgres is the Opener of a database of t on the test server.
func Postgres(t testing.TB) func(context.Context) (dialect.Engine, error) {
	dsn := harness.Postgres(t)
	if !strings.Contains(dsn, "pool_max_conns") {
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		dsn += separator + "pool_max_conns=4"
	}
	return func(ctx context.Context) (dialect.Engine, error) { return postgres.Open(ctx, dsn) }
}

// Open opens a log on an empty database and closes it with t.
func Open(t testing.TB, open Opener, opts sqlstore.Options) *sqlstore.Store {
	t.Helper()
	return start(t, open(t), opts)
}

func start(t testing.TB, open func(context.Context) (dialect.Engine, error), opts sqlstore.Options) *sqlstore.Store {
	t.Helper()
	engine, err := open(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	store, err := sqlstore.Open(context.Background(), engine, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}
