package inspect_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
)

// forgetful is a log that another process compacts before the second read.
type forgetful struct {
	dialect.Engine
	reads int
	upTo  int64
}

// Query implements dialect.Reader.
func (f *forgetful) Query(ctx context.Context, statement string, args []any, row func(dialect.Row) error) error {
	if f.reads++; f.reads == 2 {
		if _, err := f.Compact(ctx, f.upTo, 10); err != nil {
			return err
		}
	}
	return f.Engine.Query(ctx, statement, args, row)
}

// TestAtWhileCompacted asks for a version that is removed meanwhile.
func TestAtWhileCompacted(t *testing.T) {
	log := &forgetful{Engine: storetest.OpenEngine(t, engines.SQLite(t))}
	defer log.Close()
	w := write("secrets", "ns", "a")
	created, err := log.Commit(t.Context(), []dialect.Write{w})
	if err != nil {
		t.Fatal(err)
	}
	w.Operation, w.Replaces = dialect.Update, created.Last
	updated, err := log.Commit(t.Context(), []dialect.Write{w})
	if err != nil {
		t.Fatal(err)
	}
	log.upTo = updated.Last
	object := inspect.Object{Resource: sqlstore.Resource{Name: "secrets"}, Namespaces: []string{"ns"}, Name: "a"}
	if _, err := inspect.At(t.Context(), log, object, created.Last); !errors.Is(err, inspect.ErrForgotten) {
		t.Errorf("its first version: %v", err)
	}
}
