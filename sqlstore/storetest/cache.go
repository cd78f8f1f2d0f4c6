package storetest

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// cachedAndNot returns a test that runs test on a log that keeps live rows in memory, and on one that reads all of them from the
// database.
func cachedAndNot(test func(*testing.T, *sqlstore.Store)) func(*testing.T, Opener) {
	return func(t *testing.T, open Opener) {
		for name, bytes := range map[string]int64{"cached": 0, "uncached": sqlstore.NoCache} {
			t.Run(name, func(t *testing.T) { test(t, Open(t, open, sqlstore.Options{CacheBytes: bytes})) })
		}
	}
}

// testSmallCache reads collections that do not fit into memory together, and one that does not fit at all, while they grow and
// shrink.
func testSmallCache(t *testing.T, open Opener) {
	s := Open(t, open, sqlstore.Options{CacheBytes: 20_000})
	h := &History{}
	Load{Writers: 8, Writes: 30, Keys: 30}.Run(t, s, h)
	others := make([]sqlstore.Resource, 4)
	for i := range others {
		others[i] = sqlstore.Resource{Name: fmt.Sprintf("others%d", i)}
		for j := range 20 {
			w := put(fmt.Sprint(j), fmt.Sprintf(`{"other":%d}`, i), nil)
			w.Resource = others[i]
			must(t, s, w)
		}
	}
	grown := 0
	for round := range 20 {
		for i, other := range others {
			all, _, err := records(t.Context(), s, sqlstore.Query{Resource: other})
			for _, r := range all {
				if want := fmt.Sprintf(`{"other":%d}`, i); string(r.Value) != want {
					t.Errorf("%s has %s, want %s", r.Key, r.Value, want)
				}
			}
			if err != nil || len(all) != 20 {
				t.Fatalf("a list of %s has %d objects, %v", other.Name, len(all), err)
			}
		}
		Load{Writers: 2, Writes: 5, Keys: 30}.Run(t, s, h)
		state, at := mustList(t, s, 0)
		Equal(t, fmt.Sprintf("the state at %d", at.Revision), state, h.State(at.Revision))
		if round%5 == 4 {
			grown++
			w := put(fmt.Sprintf("large%d", grown), fmt.Sprintf(`{"large":"%015000d"}`, grown), nil)
			h.Add(t, w, must(t, s, w).Revision)
		}
	}
}

// testCacheAfterAmbiguousCommit reads right after a commit whose response was lost: if a conflict shows that it took effect, a
// read does too.
func testCacheAfterAmbiguousCommit(t *testing.T, open Opener) {
	broken := &dialect.Error{Op: "commit", Engine: "test", Err: dialect.ErrUnavailable}
	engine := &Intercepted{Engine: OpenEngine(t, open(t))}
	s := Start(t, engine, sqlstore.Options{})
	mustList(t, s, 0) // so that it is in memory
	for i := range 50 {
		key, value := fmt.Sprint(i), fmt.Sprintf(`{"n":%d}`, i)
		engine.AfterCommit = func([]dialect.Write) error { return broken }
		if _, err := s.Write(t.Context(), put(key, value, nil)); !errors.Is(err, dialect.ErrUnavailable) {
			t.Fatalf("a write whose commit was not acknowledged returned %v", err)
		}
		engine.AfterCommit = nil
		if r, _, err := s.Get(t.Context(), things, key); err != nil || r == nil || string(r.Value) != value {
			t.Fatalf("the written object is read as %v, %v", r, err)
		}
		if state, _ := mustList(t, s, 0); len(state) != i+1 {
			t.Fatalf("a list after %d writes has %d objects", i+1, len(state))
		}
	}
}

// testCacheOfOtherProcess reads from memory what another process has just written.
func testCacheOfOtherProcess(t *testing.T, open Opener) {
	again := open(t)
	engine := OpenEngine(t, again)
	if engine.Notifications() == nil {
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
		return // only one process can open an SQLite file
	}
	one, other := Start(t, engine, sqlstore.Options{}), Start(t, OpenEngine(t, again), sqlstore.Options{})
	mustList(t, other, 0) // so that it is in memory
	h := &History{}
	var last *sqlstore.Record
	for i := range 100 {
		w := put("a", fmt.Sprintf(`{"n":%d}`, i), last)
		last = must(t, one, w)
		h.Add(t, w, last.Revision)
		if r, _, err := other.Get(t.Context(), things, "a"); err != nil || r == nil || r.Revision != last.Revision {
			t.Fatalf("the other process reads %v, %v; want revision %d", r, err, last.Revision)
		}
	}
	for i := range 8 {
		Load{Writers: 4, Writes: 10, Keys: 30}.Run(t, one, h)
		state, at := mustList(t, other, 0)
		Equal(t, fmt.Sprintf("the state at %d after load %d", at.Revision, i), state, h.State(at.Revision))
	}
}

// testCacheFreesReplaced repeatedly updates an object that is in memory, and checks that only the last versions stay there.
func testCacheFreesReplaced(t *testing.T, open Opener) {
	s := Open(t, open, sqlstore.Options{})
	mustList(t, s, 0) // so that it is in memory
	var last *sqlstore.Record
	var versions []weak.Pointer[byte]
	for i := range 100 {
		w := put("a", fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat("x", 1000)), last)
		versions = append(versions, weak.Make(&w.Value[0]))
		must(t, s, w)
		r, _, err := s.Get(t.Context(), things, "a")
		if err != nil || r == nil {
			t.Fatalf("the object is read as %v, %v", r, err)
		}
		last = r
	}
	const latest = 30 // may be held for reads of older revisions, by the store or by this test
	Eventually(t, "replaced versions are no longer in memory", func() bool {
		runtime.GC()
		return !slices.ContainsFunc(versions[:len(versions)-latest], func(v weak.Pointer[byte]) bool { return v.Value() != nil })
	})
	runtime.KeepAlive(s)
}
