package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/test/harness"
)

// object returns a write that creates an object of the given size, which Postgres can hardly compress.
func object(key string, size int) dialect.Write {
	value := []byte(`{"filler":"`)
	for len(value) < size {
		value = fmt.Appendf(value, "%016x", rand.Uint64())
	}
	return dialect.Write{Operation: dialect.Create, Resource: "pods", Key: key, Labels: "{}", Fields: "{}", Value: append(value, `"}`...)}
}

// land commits the group, all of which must land, and turns its writes into updates.
func land(t *testing.T, e *postgres.Engine, group []dialect.Write) {
	t.Helper()
	committed, err := e.Commit(t.Context(), group)
	harness.Must(t, err)
	for i := range group {
		if !committed.Landed[i] {
			t.Fatalf("the %s of %s conflicts", group[i].Operation, group[i].Key)
		}
		group[i].Operation, group[i].Replaces = dialect.Update, committed.Revision(i)
	}
}

// TestTableShrinks compacts most of a log in which small and large live rows are scattered. Two processes shrink it while one of
// them keeps writing. Every write lands, and the live rows are unchanged.
func TestTableShrinks(t *testing.T) {
	dsn := harness.Postgres(t)
	e, replica := open(t, dsn), open(t, dsn)
	busy := []dialect.Write{object("busy-large", 20_000)}
	for i := range 40 {
		busy = append(busy, object(fmt.Sprintf("busy-%d", i), 800))
	}
	for i := range 300 {
		land(t, e, busy)
		if i%5 == 0 { // few, so that vacuum would skip the indexes
			land(t, e, []dialect.Write{object(fmt.Sprintf("kept-%d", i), 500+4000*(i%2))})
		}
	}
	total := func() int64 { return number(t, e, "SELECT pg_total_relation_size('log')") }
	kept := func() int64 {
		return number(t, e, "SELECT sum(('x' || left(md5(l::text), 8))::bit(32)::bigint)::bigint FROM log l WHERE key LIKE 'kept-%'")
	}
	before, rows := total(), kept()
	if n, err := e.Compact(t.Context(), busy[0].Replaces, 1_000_000, nil); err != nil || n < 10_000 {
		t.Fatal(n, err)
	}
	ctx, end := context.WithCancel(t.Context())
	var processes sync.WaitGroup
	for _, process := range []*postgres.Engine{e, replica} {
		processes.Go(func() {
			for ctx.Err() == nil {
				if _, err := process.Shrink(ctx); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				time.Sleep(time.Millisecond)
			}
		})
	}
	updates := 0
	for ; total() > before/5; updates++ {
		land(t, e, busy[1:])
		if _, err := e.Compact(t.Context(), busy[1].Replaces-1, 1000, nil); err != nil {
			t.Fatal(err)
		}
	}
	end()
	processes.Wait()
	t.Logf("%d bytes shrank to %d, after %d more updates", before, total(), updates*len(busy[1:]))
	if kept() != rows {
		t.Error("the live rows have changed")
	}
	if n := number(t, e, "SELECT count(*) FROM pg_index WHERE indrelid = 'log'::regclass AND NOT indisvalid"); n > 0 {
		t.Errorf("%d indexes are not valid", n)
	}
}

// TestStartWhileAnotherShrinks opens a database while another process has the lock of those that shrink it, which may take
// minutes.
func TestStartWhileAnotherShrinks(t *testing.T) {
	dsn := harness.Postgres(t)
	shrinking := harness.Connect(t, dsn)
	if _, err := shrinking.Exec(t.Context(), "SELECT pg_advisory_lock($1)", postgres.ShrinkLock); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := postgres.Open(ctx, dsn)
	harness.Must(t, err)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
