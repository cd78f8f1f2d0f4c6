package sqlstore_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
)

// TestDamageIsLoggedOnce reads a damaged database several times.
func TestDamageIsLoggedOnce(t *testing.T) {
	var log storetest.Lines
	var damaged atomic.Bool
	engine := &storetest.Intercepted{Engine: storetest.OpenEngine(t, engines.SQLite(t)), BeforeQuery: func(context.Context, string) error {
		if damaged.Load() {
			return &dialect.Error{Op: "query", Engine: "test", Err: dialect.ErrCorrupt}
		}
		return nil
	}}
	s := storetest.Start(t, engine, sqlstore.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	damaged.Store(true)
	for range 3 {
		if _, err := s.Position(t.Context()); !errors.Is(err, dialect.ErrCorrupt) {
			t.Errorf("a read of a damaged database: %v", err)
		}
	}
	if n := strings.Count(log.String(), "the database is damaged: stop all servers"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, log.String())
	}
}

// TestNoCounter checks that a log without its counter does not look like one without the object, nor like one that is unavailable
// for a moment.
func TestNoCounter(t *testing.T) {
	for name, opener := range map[string]storetest.Opener{"sqlite": engines.SQLite, "postgres": engines.Postgres} {
		t.Run(name, func(t *testing.T) {
			engine := storetest.OpenEngine(t, opener(t))
			s := storetest.Start(t, engine, sqlstore.Options{CacheBytes: sqlstore.NoCache, Log: slog.New(slog.DiscardHandler)})
			if err := engine.(interface {
				Exec(ctx context.Context, statement string, args ...any) error
			}).Exec(t.Context(), "DELETE FROM counter"); err != nil {
				t.Fatal(err)
			}
			if _, _, err := s.Get(t.Context(), sqlstore.Resource{Name: "things"}, "a"); !errors.Is(err, dialect.ErrCorrupt) {
				t.Errorf("a get: %v", err)
			}
			create := dialect.Write{Operation: dialect.Create, Resource: "things", Key: "a", Labels: "{}", Fields: "{}", Value: []byte("{}")}
			if _, err := engine.Commit(t.Context(), []dialect.Write{create}); !errors.Is(err, dialect.ErrCorrupt) {
				t.Errorf("a write: %v", err)
			}
		})
	}
}
