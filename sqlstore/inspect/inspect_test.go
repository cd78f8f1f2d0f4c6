package inspect_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// TestAtWhileCompacted asks for a version that another process removes before the second read.
func TestAtWhileCompacted(t *testing.T) {
	log := &storetest.Intercepted{Engine: storetest.OpenEngine(t, engines.SQLite(t))}
	defer log.Close()
	w := write("secrets", "ns", "a")
	created, err := log.Commit(t.Context(), []dialect.Write{w})
	harness.Must(t, err)
	w.Operation, w.Replaces = dialect.Update, created.Last
	updated, err := log.Commit(t.Context(), []dialect.Write{w})
	harness.Must(t, err)
	reads := 0
	log.BeforeQuery = func(ctx context.Context, _ string) (err error) {
		if reads++; reads == 2 {
			_, err = log.Compact(ctx, updated.Last, 10, nil)
		}
		return err
	}
	object := inspect.Object{Resource: sqlstore.Resource{Name: "secrets"}, Namespaces: []string{"ns"}, Name: "a"}
	if _, err := inspect.At(t.Context(), log, object, created.Last); !errors.Is(err, inspect.ErrForgotten) {
		t.Errorf("its first version: %v", err)
	}
}

// TestEach walks over more objects than one read returns, of several resources, some of which were replaced or deleted.
func TestEach(t *testing.T) {
	for name, open := range map[string]storetest.Opener{"sqlite": engines.SQLite, "postgres": engines.Postgres} {
		t.Run(name, func(t *testing.T) {
			log := storetest.OpenEngine(t, open(t))
			defer log.Close()
			want := map[string]bool{}
			var writes []dialect.Write
			for i := range 700 {
				for _, resource := range []string{"secrets", "secrets-and-more"} {
					w := write(resource, "ns", fmt.Sprint("a-", i))
					writes = append(writes, w)
					want[resource+"."+w.Key] = true
				}
			}
			created, err := log.Commit(t.Context(), writes)
			harness.Must(t, err)
			update, deletion := writes[1398], writes[1399]
			update.Operation, update.Replaces = dialect.Update, created.Last-1
			deletion.Operation, deletion.Replaces, deletion.Value = dialect.Delete, created.Last, nil
			if _, err := log.Commit(t.Context(), []dialect.Write{update, deletion}); err != nil {
				t.Fatal(err)
			}
			delete(want, "secrets-and-more.ns/a-699")
			err = inspect.Each(t.Context(), log, func(row *dialect.LogRow) error {
				if object := row.Resource + "." + row.Key; want[object] {
					delete(want, object)
				} else {
					t.Errorf("%s comes again, or does not exist", object)
				}
				return nil
			})
			if err != nil || len(want) > 0 {
				t.Errorf("%d objects are missing, %v", len(want), err)
			}
		})
	}
}
