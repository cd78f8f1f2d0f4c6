package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// beat is a heartbeat of the object that is previous.
func beat(previous *sqlstore.Record, n int) *sqlstore.Write {
	w := put(previous.Key, fmt.Sprintf(`{"beat":%d}`, n), previous)
	w.Heartbeat = true
	return w
}

// beating returns a store on which heartbeats wait for an hour, and an object in its cache.
func beating(t *testing.T, engine dialect.Engine) (*sqlstore.Store, *sqlstore.Record) {
	t.Helper()
	s := Start(t, engine, sqlstore.Options{HeartbeatInterval: time.Hour})
	r := must(t, s, put("lease", `{}`, nil))
	AwaitInMemory(t, s, things, r)
	return s, r
}

// AwaitInMemory reads a collection, which brings it into memory, and waits until that has one of its records.
func AwaitInMemory(t testing.TB, s *sqlstore.Store, resource sqlstore.Resource, r *sqlstore.Record) {
	t.Helper()
	if _, err := s.Page(t.Context(), sqlstore.Query{Resource: resource}); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the collection is in memory", func() bool { return s.KeepEncoding(resource, r, []byte("encoded")) != nil })
}

// watching watches the things from now on, without reading the log, which would commit heartbeats. It returns a function that waits for the
// change of a revision and returns the revisions of all changes.
func watching(t *testing.T, s *sqlstore.Store) func(last int64) []string {
	f, sub := subscribe(t, s, "")
	return func(last int64) (seen []string) {
		Eventually(t, "the watch has the last change", func() bool {
			changes, err := sub.Drain()
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range changes {
				seen = append(seen, fmt.Sprint(c.Record.Revision))
				f.Done(c)
			}
			return len(seen) > 0 && seen[len(seen)-1] == fmt.Sprint(last)
		})
		return seen
	}
}

const storedBeats = "SELECT count(*) FROM log WHERE value LIKE '%beat%'"

// testHeartbeats writes heartbeats between other writes. Readers and watchers see them at once and in order, and so does the log, which
// gets them with the next other write, before a read, or at the end.
func testHeartbeats(t *testing.T, open Opener) {
	again := open(t)
	engine := OpenEngine(t, again)
	holds := engine.Notifications() == nil
	s, r := beating(t, engine)
	first := revision(t, s).Revision
	watched := watching(t, s)
	stored := func(what string, want int64) {
		t.Helper()
		if !holds {
			return
		}
		if got := number(t, engine, storedBeats); got != want {
			t.Errorf("%s: %d heartbeats are in the database, not %d", what, got, want)
		}
	}
	var seen []int64
	for n := range 3 {
		r = must(t, s, beat(r, n))
		seen = append(seen, r.Revision)
		got, at, err := s.Get(t.Context(), things, "lease")
		if err != nil || got.Revision != r.Revision || at.Revision != r.Revision {
			t.Fatalf("after heartbeat %d: %+v at %+v, %v", r.Revision, got, at, err)
		}
	}
	stored("three heartbeats", 0)
	if _, err := s.Write(t.Context(), beat(&sqlstore.Record{Revision: seen[0], Key: "lease"}, 9)); !errors.Is(err, sqlstore.ErrConflict) {
		t.Errorf("a heartbeat of a replaced version returned %v", err)
	}
	must(t, s, put("other", `{}`, nil))
	stored("another write", 3)
	r = must(t, s, beat(r, 3))
	stored("a heartbeat after it", 3)
	if _, err := s.Page(t.Context(), sqlstore.Query{Resource: things, Revision: r.Revision - 1}); err != nil {
		t.Error(err)
	}
	r = must(t, s, beat(r, 4))
	var replayed []string
	if err := replay(t.Context(), s, first, r.Revision, func(c *sqlstore.Change) { replayed = append(replayed, fmt.Sprint(c.Record.Revision)) }); err != nil {
		t.Fatal(err)
	}
	stored("a replay", 5)
	r = must(t, s, beat(r, 5))
	end := must(t, s, Last())
	Equal(t, "the watch", watched(end.Revision), append(replayed, fmt.Sprint(r.Revision), fmt.Sprint(end.Revision)))
	last := must(t, s, beat(r, 6))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = Start(t, OpenEngine(t, again), sqlstore.Options{})
	got, at, err := s.Get(t.Context(), things, "lease")
	if err != nil || got.Revision != last.Revision || at.Revision != last.Revision || string(got.Value) != `{"beat":6}` {
		t.Errorf("after the end: %+v at %+v, %v", got, at, err)
	}
}

// testHeartbeatInterval waits for heartbeats to be committed by themselves.
func testHeartbeatInterval(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	s := Start(t, engine, sqlstore.Options{HeartbeatInterval: 50 * time.Millisecond})
	r := must(t, s, put("lease", `{}`, nil))
	mustList(t, s, 0)
	r = must(t, s, beat(r, 0))
	must(t, s, beat(r, 1))
	Eventually(t, "both are in the database", func() bool { return number(t, engine, storedBeats) == 2 })
}

// testHeartbeatsWhileCommitsFail lets commits fail, before and after they have taken effect, while heartbeats wait. None is lost, none
// is committed twice, and no revision is used for two rows.
func testHeartbeatsWhileCommitsFail(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	if engine.Notifications() != nil {
		return // heartbeats do not wait on this engine
	}
	failure := &dialect.Error{Op: "commit", Engine: "test", Err: dialect.ErrUnavailable}
	var before, after atomic.Bool
	fails := func(b *atomic.Bool) func([]dialect.Write) error {
		return func([]dialect.Write) error {
			if b.Load() {
				return failure
			}
			return nil
		}
	}
	s, r := beating(t, &Intercepted{Engine: engine, BeforeCommit: fails(&before), AfterCommit: fails(&after)})
	first := revision(t, s).Revision
	watched := watching(t, s)
	n := 0
	for _, failing := range []*atomic.Bool{&before, &after} {
		for range 3 {
			r = must(t, s, beat(r, n))
			n++
		}
		failing.Store(true)
		if _, err := s.Write(t.Context(), put(fmt.Sprintf("other-%d", n), `{}`, nil)); !errors.Is(err, dialect.ErrUnavailable) {
			t.Errorf("a write that failed returned %v", err)
		}
		if _, err := s.Write(t.Context(), beat(r, n)); !errors.Is(err, dialect.ErrUnavailable) {
			t.Errorf("a heartbeat after a failure returned %v", err)
		}
		failing.Store(false)
		Eventually(t, "writing works again", func() bool {
			got, _, err := s.Get(t.Context(), things, "lease")
			if err == nil {
				r = got
				_, err = s.Write(t.Context(), put(fmt.Sprintf("third-%d-%d", n, time.Now().UnixNano()), `{}`, nil))
			}
			return err == nil
		})
	}
	last := must(t, s, Last())
	var replayed []string
	if err := replay(t.Context(), s, first, last.Revision, func(c *sqlstore.Change) { replayed = append(replayed, fmt.Sprint(c.Record.Revision)) }); err != nil {
		t.Fatal(err)
	}
	Equal(t, "the watch", watched(last.Revision), replayed)
	if got := number(t, engine, storedBeats); got < int64(n) {
		t.Errorf("%d of %d heartbeats are in the database", got, n)
	}
	Sound(t, engine)
}
