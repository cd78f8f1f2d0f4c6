package sqlite_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/harness"
)

// TestStoreInMemory runs the tests of the store on an in-memory log. A spare connection keeps the database between the engines
// that a test opens in turn.
func TestStoreInMemory(t *testing.T) {
	var logs atomic.Int64
	storetest.Run(t, func(t testing.TB) func(context.Context) (dialect.Engine, error) {
		name := fmt.Sprintf("test-%d", logs.Add(1))
		keepOpen, err := sqlite.OpenNamedMemory(t.Context(), name)
		harness.Must(t, err)
		t.Cleanup(func() {
			closed(t, keepOpen)
		})
		inUse := new(atomic.Bool)
		return func(ctx context.Context) (dialect.Engine, error) {
			if inUse.Swap(true) {
				return nil, dialect.ErrLocked
			}
			e, err := sqlite.OpenNamedMemory(ctx, name)
			return &sole{e, inUse}, err
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
	defer s.inUse.Store(false)
	return s.Engine.Close()
}

// TestMemoriesAreApart opens two in-memory databases. They share nothing, and lose their rows when closed.
func TestMemoriesAreApart(t *testing.T) {
	for range 2 {
		var engines []*sqlite.Engine
		for range 2 {
			e, err := sqlite.OpenMemory(t.Context())
			harness.Must(t, err)
			engines = append(engines, e)
		}
		commit(t, engines[0], []dialect.Write{create("a", []byte(`{}`))})
		for i, want := range []string{"1", "0"} {
			if got := text(t, engines[i], "SELECT count(*) FROM log"); got != want {
				t.Errorf("database %d has %s rows, want %s", i, got, want)
			}
			if err := engines[i].Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestMemoryOutlivesItsConnection makes the driver reconnect, as after a connection failed.
func TestMemoryOutlivesItsConnection(t *testing.T) {
	e, err := sqlite.OpenMemory(t.Context())
	harness.Must(t, err)
	defer e.Close()
	commit(t, e, []dialect.Write{create("a", []byte(`{}`))})
	sqlite.DropConnections(e)
	if got := text(t, e, "SELECT count(*) FROM log"); got != "1" {
		t.Errorf("it has %s rows", got)
	}
	commit(t, e, []dialect.Write{create("b", []byte(`{}`))})
}
