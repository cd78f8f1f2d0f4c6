package inspect_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

func write(resource, namespace, name string) dialect.Write {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	value := fmt.Sprintf(`{"apiVersion":"v1","kind":"Any","metadata":{"name":%q,"namespace":%q,"uid":"1"}}`, name, namespace)
	return dialect.Write{
		Operation: dialect.Create, Resource: resource, Key: key, Namespace: namespace, Name: name, UID: "1",
		Labels: "{}", Fields: "{}", Value: []byte(value),
	}
}

// TestCheckWhileServed checks a log in which another process creates a namespace, and an object in it, before each read. It has
// one object whose namespace does not exist.
func TestCheckWhileServed(t *testing.T) {
	for name, open := range map[string]storetest.Opener{"sqlite": engines.SQLite, "postgres": engines.Postgres} {
		t.Run(name, func(t *testing.T) {
			log := &storetest.Intercepted{Engine: storetest.OpenEngine(t, open(t))}
			defer log.Close()
			namespaces := 0
			log.BeforeQuery = func(ctx context.Context, _ string) error {
				namespaces++
				namespace := fmt.Sprintf("new-%d", namespaces)
				_, err := log.Commit(ctx, []dialect.Write{write("namespaces", "", namespace), write("secrets", namespace, "a")})
				return err
			}
			if _, err := log.Commit(t.Context(), []dialect.Write{write("secrets", "none", "lost")}); err != nil {
				t.Fatal(err)
			}
			decrypt := func(_ sqlstore.Resource, _ string, value []byte) ([]byte, error) { return value, nil }
			var found []string
			checked, err := inspect.Check(t.Context(), log, decrypt, func(f inspect.Finding) { found = append(found, f.Object+": "+f.What) })
			harness.Must(t, err)
			if want := "[secrets none/lost: there is no namespace none]"; fmt.Sprint(found) != want || checked.Rows < 3 {
				t.Errorf("of %d rows it finds %s, want %s", checked.Rows, found, want)
			}
		})
	}
}
