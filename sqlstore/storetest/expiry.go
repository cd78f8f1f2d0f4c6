package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// testExpiry advances the clock past the expiry of several objects.
func testExpiry(t *testing.T, open Opener) {
	var now atomic.Int64 // milliseconds
	now.Store(time.Now().UnixMilli())
	start := now.Load()
	engine := OpenEngine(t, open(t))
	s := Start(t, engine, sqlstore.Options{
		ExpiryInterval: 10 * time.Millisecond,
		Now:            func() time.Time { return time.UnixMilli(now.Load()) },
	})
	from := revision(t, s).Revision
	expiring := func(key string, previous *sqlstore.Record, after int64) *sqlstore.Record {
		w := put(key, `{}`, previous)
		if after > 0 {
			w.ExpiresAt = start + after
		}
		return must(t, s, w)
	}
	const many = 300 // more than one group
	for i := range many {
		expiring(fmt.Sprintf("soon/%03d", i), nil, 1000)
	}
	expiring("kept", expiring("kept", nil, 1000), 0)
	expiring("extended", expiring("extended", nil, 1000), 2000)
	expiring("forever", nil, 0)

	live := func(want ...string) func() bool {
		return func() bool {
			var keys []string
			all, _, err := records(t.Context(), s, sqlstore.Query{Resource: things})
			harness.Must(t, err)
			for _, r := range all {
				keys = append(keys, r.Key)
			}
			return fmt.Sprint(keys) == fmt.Sprint(want)
		}
	}
	now.Store(start + 1000)
	Eventually(t, "the objects that expire first are gone", live("extended", "forever", "kept"))
	now.Store(start + 5000)
	Eventually(t, "all expiring objects are gone", live("forever", "kept"))

	follower := StartFollow(t, s, from)
	Finish(t, s, &History{})
	deleted := map[string]bool{}
	for _, c := range follower.Changes() {
		if c.Operation == dialect.Delete {
			if deleted[c.Record.Key] || c.Previous == nil || string(c.Previous.Value) != `{}` {
				t.Errorf("an expiry is %s", showChange(c.Operation, &c.Record, c.Previous))
			}
			deleted[c.Record.Key] = true
		}
	}
	if len(deleted) != many+1 || !deleted["extended"] {
		t.Errorf("watches saw %d deletions, want %d", len(deleted), many+1)
	}
	if n := number(t, engine, "SELECT count(*) FROM history WHERE operation = 'delete' AND user_name = '"+sqlstore.ExpiryAuthor+"'"); n != many+1 {
		t.Errorf("the history has %d expiries, want %d", n, many+1)
	}
}

// testRetention waits until versions are old enough to be compacted.
func testRetention(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	s := Start(t, engine, sqlstore.Options{Retention: 400 * time.Millisecond})
	h := &History{}
	first := revision(t, s).Revision
	began := time.Now()
	Load{Writers: 8, Writes: 60, Keys: 20}.Run(t, s, h)
	last := revision(t, s).Revision
	compacted := revision(t, s).Compacted
	if took := time.Since(began); took < 400*time.Millisecond && compacted > first { // the time is taken last, since reading takes some
		t.Errorf("after %s revisions up to %d are gone", took, compacted)
	}
	Eventually(t, "the log is compacted", func() bool { return revision(t, s).Compacted >= last })
	state, at := mustList(t, s, 0)
	Equal(t, "the state after the compaction", state, h.State(last))
	Eventually(t, "replaced rows are gone", func() bool {
		return number(t, engine, "SELECT count(*) FROM log") == int64(len(state))
	})
	if at.Compacted > at.Revision {
		t.Errorf("compacted up to %d of %d", at.Compacted, at.Revision)
	}
	if _, _, err := list(t.Context(), s, sqlstore.Query{Revision: last - 1}); !errors.Is(err, sqlstore.ErrCompacted) {
		t.Errorf("a list before the compacted revision returned %v", err)
	}
	mustList(t, s, at.Compacted)
	if err := replay(t.Context(), s, first, last, func(*sqlstore.Change) {}); !errors.Is(err, sqlstore.ErrCompacted) {
		t.Errorf("a replay from before the compacted revision returned %v", err)
	}
	follower := StartFollow(t, s, at.Compacted)
	Finish(t, s, h)
	Equal(t, "a watch from the compacted revision", ShowChanges(follower.Changes()), h.Changes(at.Compacted, revision(t, s).Revision))
	Sound(t, engine)
}

// testCompaction compacts up to given revisions while readers are at older ones. Each read is correct or fails with ErrCompacted.
func testCompaction(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	s := Start(t, engine, sqlstore.Options{})
	h := &History{}
	first := revision(t, s).Revision
	Load{Writers: 8, Writes: 200, Keys: 30}.Run(t, s, h)
	last := revision(t, s).Revision

	done := make(chan error, 1)
	go func() {
		for upTo := first; upTo < last; upTo += 100 {
			if err := s.Compact(t.Context(), upTo); err != nil {
				done <- err
				return
			}
		}
		done <- s.Compact(t.Context(), last)
	}()
	for at := first; ; at = min(at+7, last) {
		state, _, err := list(t.Context(), s, sqlstore.Query{Revision: at})
		switch {
		case err == nil:
			Equal(t, fmt.Sprintf("the state at %d", at), state, h.State(at))
		case errors.Is(err, sqlstore.ErrCompacted):
		default:
			t.Fatal(err)
		}
		if at == last {
			break
		}
	}
	harness.Must(t, <-done)
	if _, _, err := list(t.Context(), s, sqlstore.Query{Revision: first}); !errors.Is(err, sqlstore.ErrCompacted) {
		t.Errorf("a read of the first state, which is compacted, returned %v", err)
	}
	if n, err := s.Count(t.Context(), sqlstore.Query{Resource: things, Revision: first}); !errors.Is(err, sqlstore.ErrCompacted) { // not fewer objects
		t.Errorf("the first state, which is compacted, has %d objects, %v", n, err)
	}
	if at := revision(t, s); at.Compacted != last {
		t.Errorf("compacted up to %d, want %d", at.Compacted, last)
	}
	if err := s.Compact(t.Context(), first); err != nil { // again, and backwards
		t.Error(err)
	}
	if err := s.Compact(t.Context(), last+1); !errors.Is(err, sqlstore.ErrFuture) {
		t.Errorf("compacting up to a future revision returned %v", err)
	}
	if at := revision(t, s); at.Compacted != last {
		t.Errorf("compacted up to %d, want %d", at.Compacted, last)
	}
	state, _ := mustList(t, s, 0)
	Equal(t, "the state", state, h.State(last))
	Sound(t, engine)
}
