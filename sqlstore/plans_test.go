package sqlstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// Query plans decide whether the cost of reads depends on what they return or on the size of the table. These tests have the
// engines explain them.

// recorder keeps the last statement on the log that was run with a context that carries it.
type recorder struct {
	dialect.Engine
	text string
	args []any
}

type recorderKey struct{}

// Query implements dialect.Engine.
func (r *recorder) Query(ctx context.Context, statement string, args []any, row func(dialect.Row) error) error {
	if ctx.Value(recorderKey{}) != nil && strings.Contains(statement, " log ") {
		r.text, r.args = statement, args
	}
	return r.Engine.Query(ctx, statement, args, row)
}

// plan returns the engine's plan for the statement of read.
func (r *recorder) plan(t *testing.T, read func(context.Context) error) string {
	t.Helper()
	harness.Must(t, read(context.WithValue(t.Context(), recorderKey{}, true)))
	explain, columns := "EXPLAIN QUERY PLAN ", 4
	if r.Name() == "postgres" {
		explain, columns = "EXPLAIN (COSTS OFF) ", 1
	}
	var lines []string
	err := r.Engine.Query(t.Context(), explain+r.text, r.args, func(row dialect.Row) error {
		var numbers [3]int
		var line string
		dest := []any{&numbers[0], &numbers[1], &numbers[2], &line}
		err := row.Scan(dest[4-columns:]...)
		lines = append(lines, line)
		return err
	})
	harness.Must(t, err)
	return strings.Join(lines, "\n")
}

var pods = sqlstore.Resource{Name: "pods"}

// fill puts objects with some versions each into the log.
func fill(t *testing.T, engine dialect.Engine, objects, versions int) {
	t.Helper()
	ids := make([]int64, objects)
	for v := range versions {
		for from := 0; from < objects; from += 1000 {
			var group []dialect.Write
			for i := from; i < min(from+1000, objects); i++ {
				w := dialect.Write{
					Operation: dialect.Create, Resource: "pods", Key: fmt.Sprintf("ns-%02d/pod-%05d", i%20, i), Replaces: ids[i],
					Labels: fmt.Sprintf(`{"n":"%d"}`, i%50), Fields: "{}", Value: fmt.Appendf(nil, `{"n":%d,"version":%d}`, i, v),
				}
				if i%10 == 0 {
					w.Resource = "services"
				}
				if v > 0 {
					w.Operation = dialect.Update
				}
				group = append(group, w)
			}
			committed, err := engine.Commit(t.Context(), group)
			harness.Must(t, err)
			for i := range group {
				ids[from+i] = committed.Revision(i)
			}
		}
	}
}

// reads are the frequent reads of a server, on a log that is at revision at.
func reads(s *sqlstore.Store, at int64) map[string]func(context.Context) error {
	list := func(q sqlstore.Query) func(context.Context) error {
		if q.Resource == (sqlstore.Resource{}) {
			q.Resource = pods
		}
		return func(ctx context.Context) error { _, err := s.Page(ctx, q); return err }
	}
	return map[string]func(context.Context) error{
		"get": func(ctx context.Context) error { _, _, err := s.Get(ctx, pods, "ns-01/pod-00001"); return err },
		// Of the smaller collection: for most of a table, a scan may be right.
		"list":                       list(sqlstore.Query{Resource: sqlstore.Resource{Name: "services"}}),
		"first page":                 list(sqlstore.Query{Limit: 500}),
		"page":                       list(sqlstore.Query{After: "ns-01/pod-00001", Limit: 500}),
		"namespace":                  list(sqlstore.Query{Prefix: "ns-01/"}),
		"page at revision":           list(sqlstore.Query{Revision: at - 100, After: "ns-01/pod-00001", Limit: 500}),
		"namespace page at revision": list(sqlstore.Query{Revision: at - 100, Prefix: "ns-01/", Limit: 100}),
		"replay": func(ctx context.Context) error {
			f := s.Follow(ctx)
			defer f.Close()
			return f.Replay(pods, "", nil, at-100, at, func(c *sqlstore.Change) error {
				f.Done(c)
				return nil
			})
		},
	}
}

func TestPlansSQLite(t *testing.T) {
	engine := &recorder{Engine: storetest.OpenEngine(t, engines.SQLite(t))}
	s := storetest.Start(t, engine, sqlstore.Options{CacheBytes: sqlstore.NoCache})
	fill(t, engine, 1000, 3)
	live := "SEARCH log USING INDEX log_live (api_group=? AND resource=?"
	at := "SEARCH log USING INDEX log_replaced (replaced_by>?)"
	value := "SEARCH whole USING INTEGER PRIMARY KEY (rowid=?)"
	want := map[string][]string{
		"get":                        {"SEARCH l USING INDEX log_live (api_group=? AND resource=? AND key=?)"},
		"list":                       {live + ")"},
		"first page":                 {live + ")"},
		"page":                       {live + " AND key>?)"},
		"namespace":                  {live + " AND key>? AND key<?)"},
		"page at revision":           {"CO-ROUTINE live\n" + live + " AND key>?)\n", at, value},
		"namespace page at revision": {"CO-ROUTINE live\n" + live + " AND key>? AND key<?)\n", at, value},
		"replay":                     {"SEARCH l USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", "SEARCH p USING INTEGER PRIMARY KEY (rowid=?)"},
	}
	for name, read := range reads(s, 3001) {
		plan := engine.plan(t, read)
		for _, line := range want[name] {
			if !strings.Contains(plan, line) {
				t.Errorf("the plan of %s lacks %q:\n%s", name, line, plan)
			}
		}
		// A page at a revision may sort its keys and those changed since, but never the whole collection or any values.
		body, _, _ := strings.Cut(plan, "SCAN live")
		_, values, _ := strings.Cut(plan, "SCAN page")
		if strings.Contains(plan, "SCAN log") || strings.Contains(body+values, "TEMP B-TREE") {
			t.Errorf("the plan of %s scans the table or sorts:\n%s", name, plan)
		}
	}
}

func TestPlansPostgres(t *testing.T) {
	engine := &recorder{Engine: storetest.OpenEngine(t, engines.Postgres(t))}
	s := storetest.Start(t, engine, sqlstore.Options{CacheBytes: sqlstore.NoCache})
	fill(t, engine, 10000, 4)
	// Autovacuum would do that within a minute.
	harness.Must(t, engine.Engine.Query(t.Context(), "ANALYZE log", nil, nil))
	want := map[string][]string{
		"get":                        {"Index Scan using log_live on log l"},
		"list":                       {"log_live"},
		"first page":                 {"WindowAgg", "Limit", "Index Scan using log_live on log"},
		"page":                       {"WindowAgg", "Limit", "Index Scan using log_live on log"},
		"namespace":                  {"log_live"},
		"page at revision":           {"WindowAgg", "Merge Append", "Index Scan using log_live on log", "log_replaced"},
		"namespace page at revision": {"Merge Append", "log_live", "log_replaced"},
		"replay":                     {"Index Cond: ((id > ", "Index Scan using log_pkey on log p"},
	}
	for name, read := range reads(s, 40001) {
		plan := engine.plan(t, read)
		for _, line := range want[name] {
			if !strings.Contains(plan, line) {
				t.Errorf("the plan of %s lacks %q:\n%s", name, line, plan)
			}
		}
		if strings.Contains(plan, "Seq Scan on log") {
			t.Errorf("the plan of %s scans the table:\n%s", name, plan)
		}
	}
}
