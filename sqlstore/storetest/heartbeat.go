package storetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
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
	s := Start(t, engine, sqlstore.Options{HeartbeatInterval: time.Hour, HeartbeatResource: things})
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
			harness.Must(t, err)
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

// replayed returns the revisions of the things' changes after a revision, as a client gets them that has seen everything up to there.
func replayed(t *testing.T, s *sqlstore.Store, from int64) (seen []string, err error) {
	t.Helper()
	at := revision(t, s)
	err = replay(t.Context(), s, from, at.Revision, func(c *sqlstore.Change) { seen = append(seen, fmt.Sprint(c.Record.Revision)) })
	if err != nil && !errors.Is(err, sqlstore.ErrCompacted) {
		t.Fatal(err)
	}
	return seen, err
}

// mayHold reports whether heartbeats wait on an engine.
func mayHold(t *testing.T, engine dialect.Engine) bool {
	t.Helper()
	may, err := engine.MayHold(t.Context())
	harness.Must(t, err)
	return may
}

// testHeartbeats writes heartbeats between other writes. Readers and watchers see them at once and in order. The log gets the newest of
// an object with the next other write or at the end, and all before it is read. A reader that needs an older one is told that it is gone.
func testHeartbeats(t *testing.T, open Opener) {
	again := open(t)
	engine := OpenEngine(t, again)
	holds := mayHold(t, engine)
	s, r := beating(t, engine)
	first := r.Revision
	watched := watching(t, s)
	stored := func(what string, want int64) {
		t.Helper()
		if got := number(t, engine, storedBeats); holds && got != want {
			t.Errorf("%s: %d heartbeats are in the database, not %d", what, got, want)
		}
	}
	var seen []string // revisions
	write := func(w *sqlstore.Write) *sqlstore.Record {
		t.Helper()
		r := must(t, s, w)
		seen = append(seen, fmt.Sprint(r.Revision))
		return r
	}
	var beats []int64
	for n := range 3 {
		r = write(beat(r, n))
		beats = append(beats, r.Revision)
		got, at, err := s.Get(t.Context(), things, "lease")
		if err != nil || got.Revision != r.Revision || at.Revision != r.Revision {
			t.Fatalf("after heartbeat %d: %+v at %+v, %v", r.Revision, got, at, err)
		}
	}
	stored("three heartbeats", 0)
	if _, err := s.Write(t.Context(), beat(&sqlstore.Record{Revision: beats[0], Key: "lease"}, 9)); !errors.Is(err, sqlstore.ErrConflict) {
		t.Errorf("a heartbeat of a replaced version returned %v", err)
	}
	write(put("other", `{}`, nil))
	stored("another write", 1)
	for from, whole := range map[int64]bool{first: !holds, beats[0]: !holds, beats[1]: true, beats[2]: true} {
		got, err := replayed(t, s, from)
		if whole != (err == nil) {
			t.Errorf("a watch from revision %d: %v, and heartbeats up to %d are not in the log", from, err, beats[1])
		}
		if whole {
			Equal(t, fmt.Sprintf("a watch from revision %d", from), got, seen[from-first:])
		}
		page, err := s.Page(t.Context(), sqlstore.Query{Resource: things, Revision: from})
		if !errors.Is(err, sqlstore.ErrCompacted) && (err != nil || len(page.Records) != 1 || page.Records[0].Revision != from) {
			t.Errorf("a list at revision %d: %+v, %v", from, page, err)
		}
		if err != nil && (!holds || from == beats[2]) {
			t.Errorf("a list at revision %d: %v", from, err)
		}
	}
	r = write(beat(r, 3))
	r = write(beat(r, 4))
	stored("two heartbeats after it", 1)
	got, err := replayed(t, s, beats[2])
	if err != nil {
		t.Error(err)
	}
	Equal(t, "a watch that needs heartbeats which are not yet in the log", got, seen[3:])
	stored("a watch", 3)
	r = write(beat(r, 5))
	end := write(Last())
	Equal(t, "the watch", watched(end.Revision), seen)
	missing := must(t, s, beat(r, 6)) // nothing reads it, so that no snapshot has it
	r = must(t, s, beat(missing, 7))
	must(t, s, put("another", `{}`, nil))
	if _, err := s.Page(t.Context(), sqlstore.Query{Resource: things, Revision: missing.Revision}); holds != errors.Is(err, sqlstore.ErrCompacted) {
		t.Errorf("a list at the revision of a heartbeat that is not in the log: %v", err)
	}
	last := must(t, s, beat(must(t, s, beat(r, 8)), 9))
	harness.Must(t, s.Close())
	engine = OpenEngine(t, again)
	stored("the end", 6)
	Sound(t, engine)
	s = Start(t, engine, sqlstore.Options{HeartbeatResource: things})
	found, at, err := s.Get(t.Context(), things, "lease")
	if err != nil || found.Revision != last.Revision || at.Revision != last.Revision || string(found.Value) != `{"beat":9}` {
		t.Errorf("after the end: %+v at %+v, %v", found, at, err)
	}
	for from, want := range map[int64]bool{end.Revision: !engine.Held(), last.Revision: true} {
		if _, err := replayed(t, s, from); want != (err == nil) {
			t.Errorf("after the end, a watch from revision %d: %v", from, err)
		}
	}
}

// testHeartbeatInterval waits for heartbeats to be committed by themselves.
func testHeartbeatInterval(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	s := Start(t, engine, sqlstore.Options{HeartbeatInterval: 50 * time.Millisecond, HeartbeatResource: things})
	r := must(t, s, put("lease", `{}`, nil))
	mustList(t, s, 0)
	r = must(t, s, beat(r, 0))
	must(t, s, beat(r, 1))
	Eventually(t, "the last one is in the database", func() bool {
		return number(t, engine, storedBeats+" AND value LIKE '%1%' AND replaced_by IS NULL") == 1
	})
}

// testHeartbeatsWhileCommitsFail lets commits fail, before and after they have taken effect, while heartbeats wait. None is lost, none
// is committed twice, and no revision is used for two changes.
func testHeartbeatsWhileCommitsFail(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	if !mayHold(t, engine) {
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
	changes := map[int64]bool{} // by revision
	n := 0
	for _, failing := range []*atomic.Bool{&before, &after} {
		for range 3 {
			r = must(t, s, beat(r, n))
			changes[r.Revision] = true
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
	err := engine.Query(t.Context(), fmt.Sprintf("SELECT id FROM log WHERE id > %d", first), nil, func(row dialect.Row) error {
		var id int64
		err := row.Scan(&id)
		changes[id] = true
		return err
	})
	harness.Must(t, err)
	var want []string
	for _, id := range slices.Sorted(maps.Keys(changes)) {
		want = append(want, fmt.Sprint(id))
	}
	Equal(t, "the watch", watched(last.Revision), want)
	Sound(t, engine)
}

// testRefusedHeartbeats lets the database refuse writes, while heartbeats wait. A refused write that does not wait takes no heartbeat with
// it, and a refused heartbeat no other write.
func testRefusedHeartbeats(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	if !mayHold(t, engine) {
		return // heartbeats do not wait on this engine
	}
	refused := errors.New("refused")
	s, r := beating(t, &Intercepted{Engine: engine, BeforeCommit: func(group []dialect.Write) error {
		for _, w := range group {
			if strings.Contains(string(w.Value), "bad") && !w.Superseded {
				return refused
			}
		}
		return nil
	}})
	before := revision(t, s).Revision
	watched := watching(t, s)
	first := must(t, s, beat(r, 1))
	if _, err := s.Write(t.Context(), put("bad", `"bad"`, nil)); !errors.Is(err, refused) {
		t.Errorf("a refused write returned %v", err)
	}
	kept := must(t, s, put("good", `{}`, nil))
	Equal(t, "the watch", watched(kept.Revision), []string{fmt.Sprint(first.Revision), fmt.Sprint(kept.Revision)})
	if got := number(t, engine, storedBeats); got != 1 {
		t.Errorf("%d heartbeats are stored after a refused write", got)
	}

	_, sub := subscribe(t, s, "")
	bad := put("lease", `"bad"`, first)
	bad.Heartbeat = true
	last := must(t, s, bad)                         // its refusal comes too late
	_, err := s.RevisionAt(t.Context(), time.Now()) // a read of the log, before which it is tried
	harness.Must(t, err)
	if now := revision(t, s).Revision; now != last.Revision+1 {
		t.Errorf("after the lost heartbeat %d, a list is at %d", last.Revision, now)
	}
	for n := range 3 {
		after := must(t, s, put(fmt.Sprint("after-", n), `{}`, nil))
		if after.Revision <= last.Revision {
			t.Errorf("revision %d is given out again", after.Revision)
		}
	}
	Eventually(t, "the watch of what is lost ends", func() bool {
		_, err := sub.Drain()
		return errors.Is(err, sqlstore.ErrSlow)
	})
	got, at, err := s.Get(t.Context(), things, "lease")
	if err != nil || got.Revision != first.Revision || at.Revision <= last.Revision {
		t.Errorf("after its last heartbeat was lost, the object is %+v at %+v, %v", got, at, err)
	}
	if _, err := replayed(t, s, last.Revision+1); err != nil {
		t.Errorf("a watch from after the lost heartbeat: %v", err)
	}
	if _, err := replayed(t, s, kept.Revision); err != nil {
		t.Errorf("a watch from before the lost heartbeat: %v", err)
	}
	if page, err := s.Page(t.Context(), sqlstore.Query{Resource: things, Revision: kept.Revision}); err != nil || !slices.ContainsFunc(page.Records, func(r *sqlstore.Record) bool { return r.Revision == first.Revision }) {
		t.Errorf("a list from before the lost heartbeat: %v, %v", page.Records, err)
	}
	if _, err := replayed(t, s, last.Revision); !errors.Is(err, sqlstore.ErrCompacted) {
		t.Errorf("a watch from the revision of a lost heartbeat: %v", err)
	}
	if _, err := s.Page(t.Context(), sqlstore.Query{Resource: things, Revision: last.Revision}); !errors.Is(err, sqlstore.ErrCompacted) {
		t.Errorf("a list at the revision of a lost heartbeat: %v", err)
	}
	if next := must(t, s, beat(got, 3)); next.Revision <= at.Revision {
		t.Errorf("after %d, the next heartbeat is %d", at.Revision, next.Revision)
	}
	if now := revision(t, s).Revision; now <= before {
		t.Errorf("the log is at %d", now)
	}
	Sound(t, engine)
}
