package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// testReplayBoundary keeps starting watches at old revisions while writers run. Each receives every change from there on, once
// and in order, wherever the boundary lies between its replay of the log and its subscription.
func testReplayBoundary(t *testing.T, open Opener) {
	s := Open(t, open, sqlstore.Options{})
	h := &History{}
	first := revision(t, s).Revision
	Load{Writers: 8, Writes: 90, Keys: 40}.Run(t, s, h) // more than a single read of the log returns

	ended := make(chan struct{})
	var followers []*Followed
	var starter sync.WaitGroup
	starter.Go(func() {
		random := rand.New(rand.NewPCG(5, 6))
		for len(followers) < 60 {
			select {
			case <-ended:
				return
			case <-time.After(time.Duration(random.IntN(10)) * time.Millisecond):
			}
			at, err := s.Position(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			from := first + random.Int64N(at.Revision-first+1)
			if random.IntN(2) == 0 {
				from = at.Revision
			}
			followers = append(followers, StartFollow(t, s, from))
		}
	})
	Load{Writers: 8, Writes: 100, Keys: 40}.Run(t, s, h)
	close(ended)
	starter.Wait()
	Finish(t, s, h)
	last := revision(t, s).Revision
	for _, f := range followers {
		Equal(t, fmt.Sprintf("the watch from %d", f.from), ShowChanges(f.Changes()), h.Changes(f.from, last))
	}
	if len(followers) < 3 {
		t.Errorf("only %d watches", len(followers))
	}
}

// testReplayOfLargeChanges replays changes so large that only a few are read at once. The database sends each of them once.
func testReplayOfLargeChanges(t *testing.T, open Opener) {
	engine := &sent{Engine: OpenEngine(t, open(t))}
	s := Start(t, engine, sqlstore.Options{})
	h := &History{}
	from := revision(t, s).Revision
	var last *sqlstore.Record
	for i := range 40 {
		w := put("a", fmt.Sprintf(`{"n":"%0*d"}`, sqlstore.FollowBytes/5, i), last)
		if i%10 == 9 {
			w = remove(last)
		}
		last = must(t, s, w)
		h.Add(t, w, last.Revision)
		if w.Operation == dialect.Delete {
			last = nil
		}
	}
	var changes []*sqlstore.Change
	to := revision(t, s).Revision
	err := replay(context.WithValue(t.Context(), sentKey{}, true), s, from, to, func(c *sqlstore.Change) { changes = append(changes, c) })
	harness.Must(t, err)
	Equal(t, "the replay", ShowChanges(changes), h.Changes(from, to))
	if rows := engine.rows.Load(); int(rows) != len(changes) {
		t.Errorf("the database sent %d rows for %d changes", rows, len(changes))
	}
}

// testReplayOfSelections changes objects at random and replays what selections have missed, some of it with the help of the
// recent changes in memory. Each replay has all changes that concern its selection, once and in order.
func testReplayOfSelections(t *testing.T, open Opener) {
	for _, cache := range []int64{sqlstore.DefaultCacheBytes, 256 << 10, sqlstore.NoCache} {
		s := Open(t, open, sqlstore.Options{CacheBytes: cache})
		random := rand.New(rand.NewPCG(13, 14))
		var changes []randomWrite
		writes := newRandomWrites(random)
		first := revision(t, s).Revision
		for i := range 250 {
			changes = append(changes, writes.next(t, s, i))
		}
		last := revision(t, s).Revision
		for range 100 {
			choice := randomChoice(t, random)
			from := first + random.Int64N(last-first)
			to := from + random.Int64N(last-from+1)
			concerns := map[int64]bool{}
			var want, got []int64
			for _, c := range changes {
				if from < c.revision && c.revision <= to && choice.concerns(c) {
					concerns[c.revision] = true
					want = append(want, c.revision)
				}
			}
			seen := from
			if err := replaySelection(t.Context(), s, choice, from, to, func(c *sqlstore.Change) {
				if c.Record.Revision <= seen {
					t.Errorf("the change at %d comes after that at %d", c.Record.Revision, seen)
				}
				if seen = c.Record.Revision; concerns[seen] {
					got = append(got, seen)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) || seen > to {
				t.Errorf("with %d bytes of cache, %s from %d to %d replays %v, want %v", cache, choice, from, to, got, want)
			}
		}
	}
}

// testReplayReadsWhatConcerns replays what watches of a single object have missed: the database sends little else. Compacted
// changes are not replayed, even if they are still in memory.
func testReplayReadsWhatConcerns(t *testing.T, open Opener) {
	engine := &sent{Engine: OpenEngine(t, open(t))}
	s := Start(t, engine, sqlstore.Options{})
	from := revision(t, s).Revision
	for i := range 1000 {
		w := put(fmt.Sprintf("pod-%d", i), `{}`, nil)
		w.Fields = sqlstore.EncodeSet(map[string]string{"spec.nodeName": fmt.Sprintf("node-%d", i%100)})
		must(t, s, w)
	}
	at := revision(t, s).Revision
	on := choice{labels: labels.Everything(), fields: fields.OneTermEqualSelector("spec.nodeName", "node-42")}
	none := choice{labels: labels.Everything(), fields: fields.OneTermEqualSelector("spec.nodeName", "none")}
	count := func(choice choice) (changes int) {
		harness.Must(t, replaySelection(context.WithValue(t.Context(), sentKey{}, true), s, choice, from, at, func(*sqlstore.Change) { changes++ }))
		return changes
	}
	if changes, rows := count(on), engine.rows.Load(); changes != 10 || rows != 10 {
		t.Errorf("the database sent %d rows for a replay of %d changes, 10 of which are relevant", rows, changes)
	}
	if changes, rows := count(none), engine.rows.Load(); changes != 0 || rows != 10 {
		t.Errorf("the database sent %d rows for a replay of %d changes, none of which is relevant", rows-10, changes)
	}
	if _, err := engine.Compact(t.Context(), at, 1000, nil); err != nil {
		t.Fatal(err)
	}
	for _, choice := range []choice{on, none} {
		if err := replaySelection(t.Context(), s, choice, from, at, func(*sqlstore.Change) {}); !errors.Is(err, sqlstore.ErrCompacted) {
			t.Errorf("a replay of %s from a compacted revision: %v", choice, err)
		}
	}
}

// commitUnseen appends n updates of r to the log, bypassing the Store, and returns the last.
func commitUnseen(t *testing.T, engine dialect.Engine, h *History, r *sqlstore.Record, n int) *sqlstore.Record {
	t.Helper()
	for i := range n {
		w := put(r.Key, fmt.Sprintf(`{"unseen":%d}`, i), r)
		committed, err := engine.Commit(t.Context(), []dialect.Write{w.LogRow(0, sqlstore.Author{}, time.Time{}).Write})
		if err != nil || !committed.Landed[0] {
			t.Fatalf("commit: %+v, %v", committed, err)
		}
		h.Add(t, w, committed.Last)
		r = made(w, committed.Last)
	}
	return r
}

// testCatchUp adds rows to the log that the Store has not written itself, more than a single read returns.
func testCatchUp(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	s := Start(t, engine, sqlstore.Options{PollInterval: time.Hour})
	h := &History{}
	from := revision(t, s).Revision
	follower := StartFollow(t, s, from)
	w := put("followed", `{}`, nil)
	r := must(t, s, w)
	h.Add(t, w, r.Revision)
	for range 2 {
		r = commitUnseen(t, engine, h, r, 10)
		var group []dialect.Write
		for i := range 600 {
			group = append(group, dialect.Write{Operation: dialect.Create, Group: things.Group, Resource: "others", Key: fmt.Sprint(r.Revision, "-", i), Labels: "{}", Fields: "{}", Value: []byte("{}")})
		}
		if _, err := engine.Commit(t.Context(), group); err != nil {
			t.Fatal(err)
		}
		r = commitUnseen(t, engine, h, r, 10)
	}
	Finish(t, s, h)
	Equal(t, "the subscription", ShowChanges(follower.Changes()), h.Changes(from, revision(t, s).Revision))
}

// asleep is an engine whose reads wait while a test holds its lock.
type asleep struct {
	dialect.Engine
	sync.RWMutex
}

// Query implements dialect.Engine.
func (e *asleep) Query(ctx context.Context, statement string, args []any, row func(dialect.Row) error) error {
	e.RLock()
	defer e.RUnlock()
	return e.Engine.Query(ctx, statement, args, row)
}

// testCatchUpBehindCompaction adds rows and compacts them before the Store reads them. Its subscriptions can't receive those
// changes, so they end: a silent gap would leave watchers with a wrong state forever.
func testCatchUpBehindCompaction(t *testing.T, open Opener) {
	engine := &asleep{Engine: OpenEngine(t, open(t))}
	s := Start(t, engine, sqlstore.Options{PollInterval: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	h := &History{}
	r := must(t, s, put("changed", `{}`, nil))
	_, sub := subscribe(t, s, "")

	engine.Lock()
	last := commitUnseen(t, engine, h, r, 20)
	if _, err := engine.Compact(t.Context(), last.Revision, 100, nil); err != nil {
		t.Fatal(err)
	}
	engine.Unlock()
	must(t, s, put("known", `{}`, nil))

	var err error
	for err == nil {
		select {
		case <-sub.Ready():
		case <-time.After(patience):
			t.Fatal("no change arrived")
		}
		var taken []*sqlstore.Change
		if taken, err = sub.Drain(); len(taken) > 0 {
			t.Fatalf("the subscription received %v across the gap", ShowChanges(taken))
		}
	}
	if !errors.Is(err, sqlstore.ErrSlow) {
		t.Errorf("the subscription ended with %v", err)
	}
	if err := replay(t.Context(), s, r.Revision, last.Revision, func(*sqlstore.Change) {}); !errors.Is(err, sqlstore.ErrCompacted) {
		t.Errorf("a replay across compacted revisions returned %v", err)
	}
	follower := StartFollow(t, s, last.Revision)
	Finish(t, s, h)
	if changes := follower.Changes(); len(changes) != 2 {
		t.Errorf("a new watch received %v", ShowChanges(changes))
	}
}
