package storetest

import (
	"context"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/test/harness"
)

// contradictions are rows that a log must never have, with statements that count them.
var contradictions = []struct{ what, count string }{
	{"keys with two live versions at one revision", `
SELECT count(*) FROM log a JOIN log b ON a.api_group = b.api_group AND a.resource = b.resource AND a.key = b.key AND a.id < b.id
WHERE a.operation <> 'delete' AND b.operation <> 'delete' AND (a.replaced_by IS NULL OR a.replaced_by > b.id)`},
	{"versions whose replacement does not refer to them", `
SELECT count(*) FROM log a LEFT JOIN log b ON b.id = a.replaced_by
WHERE a.operation <> 'delete' AND a.replaced_by > (SELECT compacted FROM counter) AND (b.id IS NULL OR b.replaces <> a.id OR b.key <> a.key)`},
	{"versions that replaced a version not marked as such", `
SELECT count(*) FROM log b LEFT JOIN log a ON a.id = b.replaces
WHERE b.replaces <> 0 AND b.id > (SELECT compacted FROM counter) AND (a.id IS NULL OR a.replaced_by <> b.id OR a.key <> b.key)`},
	{"creations that replace something, or other operations that do not", `
SELECT count(*) FROM log WHERE (operation = 'create') <> (replaces = 0)`},
	{"deletions that are live or have a value", `
SELECT count(*) FROM log WHERE operation = 'delete' AND (replaced_by IS NULL OR replaced_by <> id OR value IS NOT NULL)`},
	{"revisions beyond the counter", `
SELECT count(*) FROM log WHERE id > (SELECT revision FROM counter)`},
	{"times that go back", `
SELECT count(*) FROM (SELECT written_at < lag(written_at) OVER (ORDER BY id) AS back FROM log) AS l WHERE back`},
}

// Sound checks that the rows of a log do not contradict each other.
func Sound(t testing.TB, engine dialect.Engine) {
	t.Helper()
	for _, c := range contradictions {
		if n := number(t, engine, c.count); n != 0 {
			t.Errorf("the log has %s: %d", c.what, n)
		}
	}
}

func number(t testing.TB, engine dialect.Engine, statement string) (n int64) {
	t.Helper()
	err := engine.Query(context.Background(), statement, nil, func(row dialect.Row) error { return row.Scan(&n) })
	harness.Must(t, err)
	return n
}
