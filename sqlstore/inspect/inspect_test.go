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

// TestAtWhileCompacted asks for a version that another process removes before the second read.
func TestAtWhileCompacted(t *testing.T) {
	log := &storetest.Intercepted{Engine: storetest.OpenEngine(t, engines.SQLite(t))}
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
	reads := 0
	log.BeforeQuery = func(ctx context.Context, _ string) (err error) {
		if reads++; reads == 2 {
			_, err = log.Compact(ctx, updated.Last, 10)
		}
		return err
	}
	object := inspect.Object{Resource: sqlstore.Resource{Name: "secrets"}, Namespaces: []string{"ns"}, Name: "a"}
	if _, err := inspect.At(t.Context(), log, object, created.Last); !errors.Is(err, inspect.ErrForgotten) {
		t.Errorf("its first version: %v", err)
	}
}
