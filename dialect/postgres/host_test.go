package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/test/harness"
)

// host opens a database as a server at url does that hosts clusters. lost gets what it loses.
func host(t *testing.T, dsn, url string) (h *postgres.Host, lost chan string) {
	t.Helper()
	h, err := postgres.OpenHost(t.Context(), postgres.Database{DSN: dsn}, 0)
	harness.Must(t, err)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	lost = make(chan string, 100)
	harness.Must(t, h.Join(t.Context(), url, func(id string) { lost <- id }))
	return h, lost
}

func empty(*postgres.Engine) error { return nil }

// own has a host own a cluster, and opens it.
func own(t *testing.T, h *postgres.Host, id string) *postgres.Engine {
	t.Helper()
	if owner, mine, err := h.Acquire(t.Context(), id); err != nil || !mine {
		t.Fatalf("acquiring %s: it belongs to %v, %v", id, owner, err)
	}
	e, err := h.Open(id)
	harness.Must(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func created(key string) []dialect.Write {
	return []dialect.Write{{Operation: dialect.Create, Resource: "things", Key: key, Name: key, Labels: "{}", Fields: "{}", Value: []byte("{}"), WrittenAt: time.Now().UnixMilli()}}
}

// keys returns the keys of all live rows.
func keys(t *testing.T, e dialect.Reader) string {
	t.Helper()
	var all []string
	harness.Must(t, dialect.Rows(t.Context(), e, "WHERE replaced_by IS NULL ORDER BY key", nil, func(row *dialect.LogRow) error {
		all = append(all, row.Key)
		return nil
	}))
	return strings.Join(all, " ")
}

// dead has others take the server at url for dead, until it renews its row.
func dead(t *testing.T, conn *pgx.Conn, url string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), "UPDATE fleet_servers SET renewed = 'epoch' WHERE url = $1", url); err != nil {
		t.Fatal(err)
	}
}

// takeOver has a host take a cluster over from the server at url.
func takeOver(t *testing.T, conn *pgx.Conn, h *postgres.Host, id, url string) {
	t.Helper()
	harness.Eventually(t, "the cluster is taken over", func() bool {
		dead(t, conn, url)
		_, mine, err := h.Acquire(t.Context(), id)
		harness.Must(t, err)
		return mine
	})
}

// TestFormerOwner has a server go on that has lost its cluster to another one, as if it had been stopped for a while.
func TestFormerOwner(t *testing.T) {
	dsn := harness.Postgres(t)
	conn := harness.Connect(t, dsn)
	a, lost := host(t, dsn, "https://a")
	b, _ := host(t, dsn, "https://b")
	harness.Must(t, a.Make(t.Context(), "one", "", empty))
	former := own(t, a, "one")
	if _, err := former.Commit(t.Context(), created("a")); err != nil {
		t.Fatal(err)
	}
	if owner, mine, err := b.Acquire(t.Context(), "one"); err != nil || mine || owner.URL != "https://a" {
		t.Errorf("another server gets it from %v: %t, %v", owner, mine, err)
	}
	if url, err := b.Owner(t.Context(), "one"); err != nil || url != "https://a" {
		t.Errorf("the owner is %q, %v", url, err)
	}
	takeOver(t, conn, b, "one", "https://a")
	now, err := b.Open("one")
	harness.Must(t, err)
	before := keys(t, now)
	block := &dialect.Block{First: 1, Until: 2, Resource: "things", Key: "x", Name: "x", Writers: "[]", Versions: "[]"}
	for what, write := range map[string]func() error{
		"commit":         func() error { _, err := former.Commit(t.Context(), created("late")); return err },
		"commit of all":  func() error { _, err := former.CommitAll(t.Context(), created("late"), nil); return err },
		"compaction":     func() error { _, err := former.Compact(t.Context(), 2, 10, nil); return err },
		"forgetting":     func() error { _, err := former.Forget(t.Context(), 2, 10); return err },
		"purge":          func() error { return former.Purge(t.Context(), block) },
		"loading":        func() error { return load(t.Context(), former) },
		"change of past": func() error { return former.EditPast(t.Context(), "true", nil, nil) },
	} {
		if err := write(); !errors.Is(err, dialect.ErrTaken) && what != "loading" || err == nil {
			t.Errorf("a %s of a former owner: %v", what, err)
		}
	}
	if id := <-lost; id != "one" || a.Holds("one") || !b.Holds("one") {
		t.Errorf("%s is lost; the former owner holds it: %t, the new one: %t", id, a.Holds("one"), b.Holds("one"))
	}
	if got := keys(t, now); got != before || got != "a" {
		t.Errorf("after writes of a former owner, there are %q, before %q", got, before)
	}
	if _, err := now.Commit(t.Context(), created("b")); err != nil {
		t.Error(err)
	}
	if err := now.Close(); err != nil {
		t.Error(err)
	}
	again := own(t, a, "one") // as soon as it is free
	if got := keys(t, again); got != "a b" {
		t.Errorf("who has it again finds %q", got)
	}
}

func load(ctx context.Context, e *postgres.Engine) error {
	return e.Load(ctx, dialect.Position{Revision: 9}, func(func(*dialect.LogRow) error) error { return nil }, nil)
}

// TestTakeoverWhileWriting takes a cluster over again and again while its owners write: no acknowledged write is missing, and none comes later.
func TestTakeoverWhileWriting(t *testing.T) {
	dsn := harness.Postgres(t)
	conn := harness.Connect(t, dsn)
	a, _ := host(t, dsn, "https://a")
	b, _ := host(t, dsn, "https://b")
	harness.Must(t, a.Make(t.Context(), "one", "", empty))
	hosts, urls := []*postgres.Host{a, b}, []string{"https://a", "https://b"}
	owner := own(t, a, "one")
	var acknowledged []string
	for turn := range 6 {
		next := hosts[(turn+1)%2]
		written := make(chan []string)
		started := make(chan struct{})
		go func(e *postgres.Engine) {
			var keys []string
			for n := 0; ; n++ {
				key := fmt.Sprintf("%d-%03d", turn, n)
				if _, err := e.Commit(t.Context(), created(key)); err != nil {
					if !errors.Is(err, dialect.ErrTaken) {
						t.Error(err)
					}
					break
				}
				if keys = append(keys, key); n == 5 {
					close(started)
				}
			}
			written <- keys
		}(owner)
		<-started
		takeOver(t, conn, next, "one", urls[turn%2])
		e, err := next.Open("one")
		harness.Must(t, err)
		found := keys(t, e)
		acknowledged = append(acknowledged, <-written...)
		if want := strings.Join(acknowledged, " "); found != want {
			t.Fatalf("the new owner finds\n%s\nand acknowledged are\n%s", found, want)
		}
		owner = e
	}
}

// TestClusterAfterFailover has a cluster's log be one that a promoted standby may have only a part of.
func TestClusterAfterFailover(t *testing.T) {
	dsn := harness.Postgres(t)
	a, lost := host(t, dsn, "https://a")
	harness.Must(t, a.Make(t.Context(), "one", "", empty))
	e := own(t, a, "one")
	before, err := e.Commit(t.Context(), created("a"))
	harness.Must(t, err)
	if _, err := harness.Connect(t, dsn).Exec(t.Context(), "UPDATE sqube_one.counter SET incarnation = 'another'"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Commit(t.Context(), created("b")); !errors.Is(err, dialect.ErrTaken) {
		t.Errorf("a commit to a log that may lack others: %v", err)
	}
	if id := <-lost; id != "one" {
		t.Errorf("%s is lost", id)
	}
	after, err := own(t, a, "one").Commit(t.Context(), created("b"))
	harness.Must(t, err)
	if after.Last < before.Last+dialect.RevisionJump {
		t.Errorf("after revision %d comes %d", before.Last, after.Last)
	}
}

// TestForkOfAWrittenLog forks a log to which its owner writes.
func TestForkOfAWrittenLog(t *testing.T) {
	dsn := harness.Postgres(t)
	a, _ := host(t, dsn, "https://a")
	harness.Must(t, a.Make(t.Context(), "one", "", empty))
	original := own(t, a, "one")
	at, err := original.Commit(t.Context(), created("a"))
	harness.Must(t, err)
	harness.Must(t, a.Make(t.Context(), "two", "one", func(fork *postgres.Engine) error {
		_, err := original.Commit(t.Context(), created("b")) // nobody waits
		return errors.Join(err, fork.Exec(t.Context(), "DELETE FROM log WHERE key = ?", "none"))
	}))
	fork := own(t, a, "two")
	committed, err := fork.Commit(t.Context(), created("c"))
	harness.Must(t, err)
	if committed.Last != at.Last+1 {
		t.Errorf("the fork of revision %d goes on at %d", at.Last, committed.Last)
	}
	if got := [2]string{keys(t, original), keys(t, fork)}; got != [2]string{"a b", "a c"} {
		t.Errorf("the original and the fork have %q", got)
	}
	if err := a.Drop(t.Context(), "two"); !errors.Is(err, dialect.ErrLocked) {
		t.Errorf("removing a log that is open: %v", err)
	}
	if err := a.Make(t.Context(), "three", "none", empty); !errors.Is(err, postgres.ErrNoCluster) {
		t.Errorf("the fork of nothing: %v", err)
	}
}

// TestUnfinishedClusters leaves logs unfinished, as a killed server does.
func TestUnfinishedClusters(t *testing.T) {
	dsn := harness.Postgres(t)
	conn := harness.Connect(t, dsn)
	a, _ := host(t, dsn, "https://a")
	b, _ := host(t, dsn, "https://b")
	failed := errors.New("failed")
	if err := a.Make(t.Context(), "failed", "", func(*postgres.Engine) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
	harness.Must(t, a.Make(t.Context(), "made", "", func(*postgres.Engine) error {
		if _, _, err := b.Acquire(t.Context(), "made"); !errors.Is(err, postgres.ErrNoCluster) {
			t.Errorf("a log that is being made is opened: %v", err)
		}
		return b.Sweep(t.Context()) // which leaves it alone
	}))
	for id, sets := range map[string]string{"killed": "removed = true, owner = 'dead'", "half": "removed = true, owner = ''"} {
		harness.Must(t, a.Make(t.Context(), id, "", empty))
		if _, err := conn.Exec(t.Context(), "UPDATE fleet_clusters SET "+sets+" WHERE id = $1", id); err != nil {
			t.Fatal(err)
		}
	}
	harness.Must(t, b.Sweep(t.Context()))
	var schemas string
	if err := conn.QueryRow(t.Context(), "SELECT string_agg(nspname, ' ') FROM pg_namespace WHERE nspname LIKE 'sqube\\_%'").Scan(&schemas); err != nil {
		t.Fatal(err)
	}
	ids, err := b.IDs(t.Context())
	if harness.Must(t, err); schemas != "sqube_made" || fmt.Sprint(ids) != "[made]" {
		t.Errorf("the schemas are %s, the ids %v", schemas, ids)
	}
}

// TestManyClusters uses more clusters at once than there are connections, directly and through a pooler that gives each transaction another
// session. None sees anything of another.
func TestManyClusters(t *testing.T) {
	direct := harness.Postgres(t)
	for how, dsn := range map[string]string{"directly": direct, "pooled": harness.PgBouncer(t, direct)} {
		t.Run(how, func(t *testing.T) {
			a, _ := host(t, dsn, "https://a")
			var using sync.WaitGroup
			for n := range 25 {
				id := fmt.Sprintf("%s%d", how, n)
				harness.Must(t, a.Make(t.Context(), id, "", empty))
				e := own(t, a, id)
				using.Go(func() { use(t, e, id) })
			}
			using.Wait()
			var sessions int
			if err := harness.Connect(t, direct).QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'sqube'").Scan(&sessions); err != nil {
				t.Fatal(err)
			}
			if sessions > 20 {
				t.Errorf("there are %d sessions", sessions)
			}
		})
	}
}

// use writes to a cluster, and reads it in every way.
func use(t *testing.T, e *postgres.Engine, id string) {
	for range 5 {
		if _, err := e.Commit(t.Context(), created(id)); err != nil {
			t.Error(err)
			return
		}
		if got := keys(t, e); got != id {
			t.Errorf("%s has %q", id, got)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	asked := ""
	err := e.Ask(ctx, "SELECT name FROM objects", func([]string) {}, func(row []any) error {
		asked += row[0].(string)
		return nil
	})
	if err != nil || asked != id {
		t.Errorf("a query of %s returns %q, %v", id, asked, err)
	}
	for _, other := range []string{"public.log", "public.fleet_clusters", "sqube_directly0.log", "pg_namespace"} {
		err := e.Ask(ctx, "SELECT * FROM "+other, func([]string) {}, func([]any) error { return nil })
		if other != "sqube_directly0.log" || id != "directly0" {
			if err == nil {
				t.Errorf("%s can read %s", id, other)
			}
		}
	}
	_, err = e.Compact(t.Context(), 3, 100, nil)
	_, failed := e.Shrink(t.Context())
	space, unmeasured := e.Space(t.Context())
	if err := errors.Join(err, failed, unmeasured); err != nil || space.Database == 0 || space.Database > 1<<20 {
		t.Errorf("%s takes %d bytes: %v", id, space.Database, err)
	}
}

// TestClusterSchema compares the schema of a cluster with that of its host, also after it was one of an older release.
func TestClusterSchema(t *testing.T) {
	dsn := harness.Postgres(t)
	conn := harness.Connect(t, dsn)
	a, _ := host(t, dsn, "https://a")
	harness.Must(t, a.Make(t.Context(), "one", "", empty))
	describe := func(schema string) (all string) {
		const query = `
SELECT string_agg(line, E'\n' ORDER BY line) FROM (
  SELECT concat_ws(' ', relname, relkind, reloptions, CASE relkind WHEN 'i' THEN pg_get_indexdef(c.oid) WHEN 'v' THEN pg_get_viewdef(c.oid) END) AS line
  FROM pg_class c WHERE relnamespace = $1::regnamespace AND relname NOT LIKE 'fleet_%'
  UNION ALL
  SELECT concat_ws(' ', relname, attname, atttypid::regtype, attcollation::regcollation, attnotnull, attstorage, pg_get_expr(adbin, adrelid))
  FROM pg_attribute JOIN pg_class c ON c.oid = attrelid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
  WHERE relnamespace = $1::regnamespace AND attnum > 0 AND relname NOT LIKE 'fleet_%'
  UNION ALL
  SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE connamespace = $1::regnamespace AND conrelid::regclass::text NOT LIKE '%fleet_%'
) AS lines`
		if err := conn.QueryRow(t.Context(), query, schema).Scan(&all); err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(all, schema+".", "")
	}
	want := describe("public")
	if got := describe("sqube_one"); got != want || !strings.Contains(got, "log_live") {
		t.Errorf("the schema of a cluster is\n%s\ninstead of\n%s", got, want)
	}
	for _, statement := range []string{"DROP INDEX sqube_one.past_share", "UPDATE sqube_one.schema_migrations SET version = version - 2"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	harness.Must(t, a.Make(t.Context(), "two", "one", empty))
	own(t, a, "one")
	for _, schema := range []string{"sqube_one", "sqube_two"} {
		if got := describe(schema); got != want {
			t.Errorf("the schema of %s, after its upgrade, is\n%s\ninstead of\n%s", schema, got, want)
		}
	}
	if _, err := conn.Exec(t.Context(), "UPDATE sqube_two.schema_migrations SET version = 1000"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Acquire(t.Context(), "two"); err == nil || !strings.Contains(err.Error(), "use a sqube at least as new") {
		t.Errorf("a cluster with the schema of a newer sqube is opened: %v", err)
	}
}
