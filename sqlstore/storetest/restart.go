package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// testRestart closes and reopens the log. Its contents are the same, revisions keep rising, and a watch continues across the
// restart.
func testRestart(t *testing.T, open Opener) {
	again := open(t)
	h := &History{}
	var from, last int64
	for round := range 4 {
		s := Start(t, OpenEngine(t, again), sqlstore.Options{})
		at := revision(t, s)
		if round == 0 {
			from = at.Revision
		} else if at.Revision != last {
			t.Errorf("after a restart the log is at %d, want %d", at.Revision, last)
		}
		state, _ := mustList(t, s, 0)
		Equal(t, "the state after a restart", state, h.State(at.Revision))
		if round == 3 {
			follower := StartFollow(t, s, from)
			Finish(t, s, h)
			Equal(t, "a watch across restarts", ShowChanges(follower.Changes()), h.Changes(from, revision(t, s).Revision))
		} else {
			Load{Writers: 8, Writes: 20, Keys: 20}.Run(t, s, h)
		}
		last = revision(t, s).Revision
		harness.Must(t, s.Close())
	}
}

// testClose closes a Store while writes wait. Each of them returns, and acknowledged ones are there when the log is reopened.
func testClose(t *testing.T, open Opener) {
	again := open(t)
	g := newGate()
	s := Start(t, &Intercepted{Engine: OpenEngine(t, again), BeforeCommit: g.before}, sqlstore.Options{})
	_, sub := subscribe(t, s, "")

	var writes []*sqlstore.Write
	for i := range 50 {
		writes = append(writes, put(fmt.Sprintf("key-%02d", i), `{}`, nil))
	}
	errs := together(t, s, g, writes, func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	want := []string{"gate"}
	for i, err := range errs {
		switch {
		case err == nil:
			want = append(want, writes[i].Key)
		case !errors.Is(err, sqlstore.ErrClosed):
			t.Errorf("a waiting write returned %v", err)
		}
	}
	if _, err := s.Write(t.Context(), put("late", `{}`, nil)); !errors.Is(err, sqlstore.ErrClosed) {
		t.Errorf("a write to a closed store returned %v", err)
	}
	var received []string
	var err error
	for err == nil {
		var taken []*sqlstore.Change
		taken, err = sub.Drain()
		for _, c := range taken {
			received = append(received, c.Record.Key)
		}
	}
	slices.Sort(received)
	slices.Sort(want)
	if !errors.Is(err, sqlstore.ErrClosed) {
		t.Errorf("the subscription ended with %v", err)
	}
	Equal(t, "the subscription", received, want)
	_, late := subscribe(t, s, "")
	if _, err := late.Drain(); !errors.Is(err, sqlstore.ErrClosed) {
		t.Errorf("a subscription to a closed store returned %v", err)
	}

	var stored []string
	s = Start(t, OpenEngine(t, again), sqlstore.Options{})
	all, _, err := records(t.Context(), s, sqlstore.Query{Resource: things})
	harness.Must(t, err)
	for _, r := range all {
		stored = append(stored, r.Key)
	}
	slices.Sort(stored)
	Equal(t, "the stored objects", stored, want)
}
