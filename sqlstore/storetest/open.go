// Package storetest is the test suite that a log must pass on every engine. It covers what upstream's suite for a
// storage.Interface does not.
package storetest

import (
	"context"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// Opener prepares an empty database for t and returns a function that opens it, any number of times.
type Opener func(t testing.TB) func(ctx context.Context) (dialect.Engine, error)

// Open opens a log on an empty database and closes it when t ends.
func Open(t testing.TB, open Opener, opts sqlstore.Options) *sqlstore.Store {
	t.Helper()
	return Start(t, OpenEngine(t, open(t)), opts)
}

// OpenEngine opens an engine. Closing a Store on it closes it too.
func OpenEngine(t testing.TB, open func(context.Context) (dialect.Engine, error)) dialect.Engine {
	t.Helper()
	engine, err := open(context.Background())
	harness.Must(t, err)
	return engine
}

// Start starts a log on engine and closes both when t ends.
func Start(t testing.TB, engine dialect.Engine, opts sqlstore.Options) *sqlstore.Store {
	t.Helper()
	store, err := sqlstore.Open(context.Background(), engine, opts)
	harness.Must(t, err)
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}
