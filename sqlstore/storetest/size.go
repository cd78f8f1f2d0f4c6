package storetest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// testRetentionRows keeps at most a given number of replaced rows, however recent they are.
func testRetentionRows(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	const kept = 50
	s := Start(t, engine, sqlstore.Options{Retention: time.Hour, RetentionRows: kept, CompactInterval: 20 * time.Millisecond})
	h := &History{}
	first := revision(t, s).Revision
	Load{Writers: 4, Writes: 100, Keys: 10}.Run(t, s, h)
	last := revision(t, s).Revision
	const replaced = "SELECT count(*) FROM log WHERE replaced_by IS NOT NULL"
	Eventually(t, "the surplus is gone", func() bool { return number(t, engine, replaced) <= kept })
	if n := number(t, engine, replaced); n < kept-1 { // a deletion and the version that it deleted go together
		t.Errorf("%d replaced rows remain, want %d", n, kept)
	}
	if err := replay(t.Context(), s, first, last, func(*sqlstore.Change) {}); !errors.Is(err, sqlstore.ErrCompacted) {
		t.Errorf("a replay of removed changes returned %v", err)
	}
	at := revision(t, s)
	if at.Compacted >= last {
		t.Errorf("compacted up to %d of %d", at.Compacted, last)
	}
	follower := StartFollow(t, s, at.Compacted)
	Finish(t, s, h)
	Equal(t, "a watch from the compacted revision", ShowChanges(follower.Changes()), h.Changes(at.Compacted, revision(t, s).Revision))
	state, _ := mustList(t, s, 0)
	Equal(t, "the state", state, h.State(revision(t, s).Revision))
	Sound(t, engine)
}

// testStats compares the stats of a log with what was done to it.
func testStats(t *testing.T, open Opener) {
	var batches, committed, seen atomic.Int64
	var mu sync.Mutex
	requests := map[string]int{}
	s := Start(t, OpenEngine(t, open(t)), sqlstore.Options{
		Retention: 300 * time.Millisecond,
		OnBatch: func(took time.Duration) {
			if took <= 0 {
				t.Errorf("a batch took %s", took)
			}
			batches.Add(1)
		},
		OnRequest: func(operation string, resource sqlstore.Resource, began time.Time, err error) {
			if time.Since(began) <= 0 || err != nil {
				t.Errorf("%s of %v began at %s, %v", operation, resource, began, err)
			}
			mu.Lock()
			defer mu.Unlock()
			requests[operation]++
		},
		OnChange: func(sqlstore.Resource) { seen.Add(1) },
		OnGroup:  func(n int) { committed.Add(int64(n)) },
	})
	r := must(t, s, put("a", "{}", nil))
	must(t, s, put("b", "{}", nil))
	for range 10 {
		r = must(t, s, put("a", "{}", r))
	}
	if _, err := s.Write(t.Context(), put("a", "{}", nil)); !errors.Is(err, sqlstore.ErrConflict) {
		t.Errorf("creating an existing object returned %v", err)
	}
	mu.Lock()
	if requests["create"] != 3 || requests["update"] != 10 || committed.Load() != 13 {
		t.Errorf("of 3 creations and 10 updates, %v were observed, %d in transactions", requests, committed.Load())
	}
	mu.Unlock()
	Eventually(t, "12 changes are seen", func() bool { return seen.Load() == 12 })
	var stats sqlstore.Stats
	at := revision(t, s)
	// The conflict is a revision as well, which may be compacted after those of the updates.
	Eventually(t, "the updates are compacted", func() bool {
		stats, at = s.Stats(), revision(t, s)
		return stats.Live == 2 && stats.Replaced == 0 && stats.Removed == 10 && stats.Compacted > 1 && stats.Compacted == at.Compacted && stats.Lag == 0
	})
	if stats.Revision != at.Revision || stats.Space.Database == 0 || batches.Load() == 0 {
		t.Errorf("after %d batches, the stats are %+v, and the position is %+v", batches.Load(), stats, at)
	}
}

// hindered is an engine whose compaction fails, and which reports what holds it back, as set by a test.
type hindered struct {
	dialect.Engine
	by       atomic.Pointer[string]
	failures atomic.Int64 // of Compact
}

// Space implements dialect.Engine.
func (e *hindered) Space(ctx context.Context) (dialect.Space, error) {
	space, err := e.Engine.Space(ctx)
	if by := e.by.Load(); by != nil {
		space.HeldBack = []string{*by}
	}
	return space, err
}

// Compact implements dialect.Engine.
func (e *hindered) Compact(ctx context.Context, upTo int64, limit int, pack dialect.Packer) (int, error) {
	if e.by.Load() != nil {
		e.failures.Add(1)
		return 0, dialect.ErrUnavailable
	}
	return e.Engine.Compact(ctx, upTo, limit, pack)
}

// testHeldBack checks that the log warns once of what holds it back, and reports for how long it is behind.
func testHeldBack(t *testing.T, open Opener) {
	engine := &hindered{Engine: OpenEngine(t, open(t))}
	var log Lines
	s := Start(t, engine, sqlstore.Options{Retention: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
	by := "another program: end it"
	engine.by.Store(&by)
	r := must(t, s, put("a", "{}", nil))
	var lag time.Duration
	Eventually(t, "the log is behind", func() bool {
		r = must(t, s, put("a", "{}", r))
		before := lag
		lag = s.Stats().Lag
		return before > 0 && lag > before && engine.failures.Load() > 2 && strings.Contains(log.String(), by)
	})
	engine.by.Store(nil)
	Eventually(t, "it has caught up", func() bool {
		return s.Stats().Lag == 0 && strings.Contains(log.String(), "reuses the space of removed rows again")
	})
	for _, message := range []string{by, "compaction failed; retrying"} {
		if n := strings.Count(log.String(), message); n != 1 {
			t.Errorf("%q was logged %d times:\n%s", message, n, &log)
		}
	}
}

// testCompactedElsewhere checks that a process does not lag for long if another one, which writes the archive, removes what is
// due a little later.
func testCompactedElsewhere(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	const later = 30 // intervals of compaction
	var newest atomic.Int64
	newest.Store(1)
	var passed []int64
	s := Start(t, engine, sqlstore.Options{
		Retention: 100 * time.Millisecond, CompactInterval: 10 * time.Millisecond,
		Archived: func() (int64, error) {
			var err error
			if passed = append(passed, newest.Load()); len(passed) > later { // as if the other process did it
				_, err = engine.Compact(t.Context(), passed[len(passed)-1-later], 1000, nil)
			}
			return 0, errors.Join(sqlstore.ErrArchivedElsewhere, err)
		},
	})
	r := must(t, s, put("a", "{}", nil))
	lagged := false
	Eventually(t, "the other process has removed what was due", func() bool {
		r = must(t, s, put("a", "{}", r))
		newest.Store(r.Revision)
		lag := s.Stats().Lag
		lagged = lagged || lag > 0
		return lagged && lag == 0
	})
}
