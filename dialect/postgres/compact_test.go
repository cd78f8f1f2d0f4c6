package postgres_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/test/harness"
)

// open opens the database at dsn and closes it when t ends.
func open(t *testing.T, dsn string) *postgres.Engine {
	t.Helper()
	e, err := postgres.Open(t.Context(), dsn)
	harness.Must(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// fill creates objects and updates each of them the given number of times. It returns the last revision.
func fill(t *testing.T, e *postgres.Engine, objects, updates int) (last int64) {
	t.Helper()
	ids := make([]int64, objects)
	for v := range updates + 1 {
		for from := 0; from < objects; from += 1000 {
			var group []dialect.Write
			for i := from; i < min(from+1000, objects); i++ {
				w := dialect.Write{Operation: dialect.Create, Resource: "pods", Key: fmt.Sprintf("pod-%05d", i), Replaces: ids[i], Labels: "{}", Fields: "{}", Value: []byte(`{}`)}
				if v > 0 {
					w.Operation = dialect.Update
				}
				group = append(group, w)
			}
			committed, err := e.Commit(t.Context(), group)
			harness.Must(t, err)
			for i := range group {
				ids[from+i] = committed.Revision(i)
			}
			last = committed.Last
		}
	}
	return last
}

func number(t *testing.T, e *postgres.Engine, statement string) (n int64) {
	t.Helper()
	if err := e.Query(t.Context(), statement, nil, func(row dialect.Row) error { return row.Scan(&n) }); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return n
}

// TestReplicasCompactTogether compacts the same rows from several processes at once, as replicas do. Each row is removed once,
// and no process blocks another.
func TestReplicasCompactTogether(t *testing.T) {
	dsn := harness.Postgres(t)
	engines := []*postgres.Engine{open(t, dsn), open(t, dsn), open(t, dsn)}
	const objects, updates = 1000, 6
	last := fill(t, engines[0], objects, updates)
	var removed atomic.Int64
	var replicas sync.WaitGroup
	for _, e := range engines {
		replicas.Go(func() {
			const limit = 100
			for n := limit; n == limit; {
				var err error
				if n, err = e.Compact(t.Context(), last, limit, nil); err != nil {
					t.Error(err)
					return
				}
				removed.Add(int64(n))
			}
		})
	}
	replicas.Wait()
	if removed.Load() != objects*updates {
		t.Errorf("removed %d rows, want %d", removed.Load(), objects*updates)
	}
	if rows := number(t, engines[0], "SELECT count(*) FROM log"); rows != objects {
		t.Errorf("%d rows remain, want %d", rows, objects)
	}
	if compacted := number(t, engines[0], "SELECT compacted FROM counter"); compacted != last {
		t.Errorf("the log is compacted up to %d, want %d", compacted, last)
	}
}

// TestPlansOfWrites checks that Postgres uses indexes for the statements that change the log, both on a table that has grown
// since it was last analyzed and on an analyzed one.
func TestPlansOfWrites(t *testing.T) {
	dsn := harness.Postgres(t)
	e := open(t, dsn)
	conn := harness.Connect(t, dsn)
	execute := func(statement string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	execute("SET plan_cache_mode = force_custom_plan") // like the engine in its transactions
	execute("PREPARE close_rows AS " + postgres.CloseRows)
	execute("PREPARE insert_rows AS " + postgres.InsertRows)
	execute("PREPARE compact_rows(bigint, bigint, bigint) AS " + postgres.CompactRows)
	execute("PREPARE leaving_rows(bigint, bigint, bigint, bigint) AS " + postgres.LeavingRows)
	ids := "ARRAY[7" + strings.Repeat(", 7", 63) + "]"
	texts := strings.Repeat("ARRAY['a'], ", 7)
	statements := map[string]string{
		"close":   "EXECUTE close_rows(64, " + ids + ")",
		"insert":  "EXECUTE insert_rows(64, " + ids + ", " + texts + "ARRAY[1], " + strings.Repeat("ARRAY['a'], ", 8) + "ARRAY['a'])",
		"compact": "EXECUTE compact_rows(1000, 5000, 500)",
		"move":    "EXECUTE leaving_rows(1000, 5000, 500, 1000000)",
	}
	check := func(when string) {
		t.Helper()
		for name, statement := range statements {
			rows, err := conn.Query(t.Context(), "EXPLAIN (COSTS OFF) "+statement)
			harness.Must(t, err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			harness.Must(t, err)
			plan := strings.Join(lines, "\n")
			if strings.Contains(plan, "Seq Scan on log") || !strings.Contains(plan, "log_pkey") || strings.Contains(plan, "Sort") && name != "move" || strings.Contains(plan, "log_live on log") {
				t.Errorf("%s runs on %s as\n%s", name, when, plan)
			}
		}
	}
	fill(t, e, 5000, 3)
	check("a table that has grown")
	execute("ANALYZE log")
	check("an analyzed table")
}
