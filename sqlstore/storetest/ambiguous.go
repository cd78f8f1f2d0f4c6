package storetest

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// testAmbiguousCommits makes some commits fail before they do anything, and others after they have taken effect. Writers can't
// tell which; the log decides, and watches receive exactly what is in it.
func testAmbiguousCommits(t *testing.T, open Opener) {
	broken := &dialect.Error{Op: "commit", Engine: "test", Err: dialect.ErrUnavailable}
	engine := &Intercepted{Engine: OpenEngine(t, open(t))}
	random := rand.New(rand.NewPCG(7, 8))
	fail := func([]dialect.Write) error {
		if random.IntN(5) == 0 {
			return broken
		}
		return nil
	}
	s := Start(t, engine, sqlstore.Options{})
	from := revision(t, s).Revision

	// A single one, with no later write that would reveal it.
	_, sub := subscribe(t, s, "")
	engine.AfterCommit = func([]dialect.Write) error { return broken }
	if _, err := s.Write(t.Context(), put("unanswered", `{}`, nil)); !errors.Is(err, dialect.ErrUnavailable) {
		t.Errorf("a write whose commit was not acknowledged returned %v", err)
	}
	<-sub.Ready()
	if changes, err := sub.Drain(); err != nil || len(changes) != 1 || changes[0].Record.Key != "unanswered" {
		t.Errorf("the watch received %v, %v", ShowChanges(changes), err)
	}

	follower := StartFollow(t, s, from)
	engine.BeforeCommit, engine.AfterCommit = fail, fail
	h := &History{}
	failed := 0
	load := Load{Writers: 16, Writes: 40, Keys: 30, Tolerate: func(err error) bool { return errors.Is(err, dialect.ErrUnavailable) }}
	load.Run(t, s, h)
	for failed = 0; ; failed++ {
		if _, err := s.Write(t.Context(), Last()); err == nil || errors.Is(err, sqlstore.ErrConflict) {
			break // a conflict shows that the previous write was committed
		}
	}

	last := revision(t, s).Revision
	seen := ShowChanges(follower.Changes())
	replayed, err := Follow(t.Context(), s, from)
	harness.Must(t, err)
	Equal(t, "the watch, compared to the log", seen, ShowChanges(replayed))
	Subset(t, "acknowledged writes", h.Changes(from, last), seen)
	if len(seen) <= len(h.Revisions(from, last))+2 {
		t.Error("no commit took effect without an acknowledgement")
	}
	Sound(t, engine)
}
