// Package inmemory runs the tests of the store on an in-memory log. It is apart from package sqlite so that they run without the
// race detector: under it they run on files, where the same code is behind them.
package inmemory

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/harness"
)

// TestStoreInMemory keeps one engine for all stores that a test opens in turn: its Close would end the database.
func TestStoreInMemory(t *testing.T) {
	storetest.Run(t, func(t testing.TB) func(context.Context) (dialect.Engine, error) {
		engine, err := sqlite.OpenMemory(t.Context())
		harness.Must(t, err)
		t.Cleanup(func() {
			if err := engine.Close(); err != nil {
				t.Error(err)
			}
		})
		inUse := new(atomic.Bool)
		return func(context.Context) (dialect.Engine, error) {
			if inUse.Swap(true) {
				return nil, dialect.ErrLocked
			}
			return &sole{engine, inUse}, nil
		}
	})
}

// sole is an engine that must be the only one.
type sole struct {
	*sqlite.Engine
	inUse *atomic.Bool
}

// Close implements dialect.Engine.
func (s *sole) Close() error {
	s.inUse.Store(false)
	return nil
}
