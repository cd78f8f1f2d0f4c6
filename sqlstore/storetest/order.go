package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// testOrder checks that a reader that has seen revision N has seen everything up to N, while 32 writers write and conflict.
func testOrder(t *testing.T, open Opener) {
	again := open(t)
	engine := OpenEngine(t, again)
	s := Start(t, engine, sqlstore.Options{})
	reader := secondStore(t, again, s)
	from := revision(t, reader).Revision

	follower := StartFollow(t, reader, from)
	ended := make(chan struct{})
	var readers sync.WaitGroup
	var snapshots []snapshot
	var polled []string
	readers.Go(func() { snapshots = pollState(t, reader, ended) })
	readers.Go(func() { polled = pollLog(t, reader, from, ended) })

	h := &History{}
	if conflicts := (Load{Writers: 32, Writes: 40, Keys: 20}).Run(t, s, h); conflicts < 20 {
		t.Errorf("only %d writes conflicted", conflicts)
	}
	Finish(t, s, h)
	close(ended)
	readers.Wait()

	all := h.Changes(from, revision(t, s).Revision)
	Equal(t, "the subscription", ShowChanges(follower.Changes()), all)
	Equal(t, "the polls of the log", polled, all)
	for _, seen := range snapshots {
		Equal(t, fmt.Sprintf("the state at %d", seen.revision), seen.state, h.State(seen.revision))
	}
	if len(snapshots) < 5 {
		t.Errorf("the state was polled only %d times", len(snapshots))
	}
	Sound(t, engine)
}

// secondStore opens another Store on the database of s if the engine lets several processes share it. Otherwise it returns s.
func secondStore(t *testing.T, open func(context.Context) (dialect.Engine, error), s *sqlstore.Store) *sqlstore.Store {
	t.Helper()
	engine, err := open(t.Context())
	if errors.Is(err, dialect.ErrLocked) {
		return s
	}
	harness.Must(t, err)
	return Start(t, engine, sqlstore.Options{})
}

// snapshot is a state and the revision at which it was read.
type snapshot struct {
	revision int64
	state    []string
}

// pollState repeatedly reads the newest state.
func pollState(t *testing.T, s *sqlstore.Store, ended <-chan struct{}) (seen []snapshot) {
	for running := true; running && len(seen) < 200; {
		select {
		case <-ended:
			running = false
		case <-time.After(time.Millisecond):
		}
		state, at, err := list(t.Context(), s, sqlstore.Query{})
		if err != nil {
			t.Error(err)
			return seen
		}
		seen = append(seen, snapshot{at.Revision, state})
	}
	return seen
}

// pollLog repeatedly reads the log from its last position to the end, like a process without a subscription.
func pollLog(t *testing.T, s *sqlstore.Store, from int64, ended <-chan struct{}) (seen []string) {
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-time.After(time.Millisecond):
		}
		at, err := s.Position(t.Context())
		if err != nil {
			t.Error(err)
			return seen
		}
		err = replay(t.Context(), s, from, at.Revision, func(c *sqlstore.Change) {
			seen = append(seen, showChange(c.Operation, &c.Record, c.Previous))
		})
		if err != nil {
			t.Error(err)
			return seen
		}
		from = at.Revision
	}
	return seen
}
