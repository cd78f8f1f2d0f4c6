package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// patience limits every wait of the suite, even on a busy machine.
const patience = 60 * time.Second

// lastKey is the key whose creation ends a Follow.
const lastKey = "~last"

// Follow returns all changes of things after revision from, up to the creation of lastKey. Like a watch, it subscribes, replays
// from the log what precedes the subscription, and then receives changes.
func Follow(ctx context.Context, s *sqlstore.Store, from int64) ([]*sqlstore.Change, error) {
	f := s.Follow(ctx)
	defer f.Close()
	sub := f.Subscribe(things, "")
	var changes []*sqlstore.Change
	last := from
	add := func(c *sqlstore.Change) error {
		defer f.Done(c)
		if c.Record.Revision <= from {
			return nil // the subscription started before that revision
		}
		if c.Record.Revision <= last {
			return fmt.Errorf("revision %d comes after %d", c.Record.Revision, last)
		}
		last = c.Record.Revision
		changes = append(changes, c)
		return nil
	}
	ended := func() bool { return len(changes) > 0 && changes[len(changes)-1].Record.Key == lastKey }
	if err := f.Replay(things, "", nil, from, sub.Start, add); err != nil {
		return changes, fmt.Errorf("replay after %d: %w", from, err)
	}
	for !ended() {
		select {
		case <-ctx.Done():
			return changes, fmt.Errorf("after revision %d: %w", last, ctx.Err())
		case <-sub.Ready():
		}
		taken, err := sub.Drain()
		if err != nil {
			return changes, fmt.Errorf("after revision %d: %w", last, err)
		}
		for _, c := range taken {
			if err := add(c); err != nil {
				return changes, err
			}
		}
	}
	return changes, nil
}

// subscribe returns a subscription to the things whose keys begin with prefix, and its follower. They end with the test.
func subscribe(t testing.TB, s *sqlstore.Store, prefix string) (*sqlstore.Follower, *sqlstore.Subscription) {
	f := s.Follow(t.Context())
	t.Cleanup(f.Close)
	return f, f.Subscribe(things, prefix)
}

// awaitTold waits until the subscriptions have got all changes up to a revision.
func awaitTold(t testing.TB, sub *sqlstore.Subscription, revision int64) {
	harness.Eventually(t, "subscriptions get the changes", func() bool {
		told, _ := sub.Progress()
		return told >= revision
	})
}

// replay calls yield with the changes of things after from and up to to.
func replay(ctx context.Context, s *sqlstore.Store, from, to int64, yield func(*sqlstore.Change)) error {
	return replaySelection(ctx, s, choice{}, from, to, yield)
}

// replaySelection is replay, limited to changes that may concern a choice.
func replaySelection(ctx context.Context, s *sqlstore.Store, choice choice, from, to int64, yield func(*sqlstore.Change)) error {
	f := s.Follow(ctx)
	defer f.Close()
	return f.Replay(things, choice.prefix, choice.terms(), from, to, func(c *sqlstore.Change) error {
		defer f.Done(c)
		yield(c)
		return nil
	})
}

// Followed is a Follow running in the background.
type Followed struct {
	from    int64
	changes chan []*sqlstore.Change
	giveUp  context.CancelFunc
}

// StartFollow starts a Follow. Its errors fail t.
func StartFollow(t testing.TB, s *sqlstore.Store, from int64) *Followed {
	ctx, cancel := context.WithCancel(t.Context())
	f := &Followed{from: from, changes: make(chan []*sqlstore.Change, 1), giveUp: cancel}
	go func() {
		defer cancel()
		changes, err := Follow(ctx, s, from)
		if err != nil {
			t.Error(err)
		}
		f.changes <- changes
	}()
	return f
}

// Changes waits for the last change, which must already have been written, and returns all changes.
func (f *Followed) Changes() []*sqlstore.Change {
	defer time.AfterFunc(patience, f.giveUp).Stop()
	return <-f.changes
}

// Last returns the write that ends all Follows.
func Last() *sqlstore.Write { return put(lastKey, `{"last":true}`, nil) }

// Finish writes Last, and records it in h.
func Finish(t testing.TB, s *sqlstore.Store, h *History) {
	t.Helper()
	w := Last()
	h.Add(t, w, must(t, s, w).Revision)
}

// Eventually waits until condition holds.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("gave up after %s: %s", patience, what)
		}
		time.Sleep(5 * time.Millisecond) // between two checks of the condition
	}
}

// list returns the records of q as strings, and the position.
func list(ctx context.Context, s *sqlstore.Store, q sqlstore.Query) (state []string, at dialect.Position, err error) {
	q.Resource = things
	all, at, err := records(ctx, s, q)
	for _, r := range all {
		state = append(state, show(r.Key, r.Revision, r.Value))
	}
	return state, at, err
}

// records returns the records of q from all pages, and the position at the first page.
func records(ctx context.Context, s *sqlstore.Store, q sqlstore.Query) (all []*sqlstore.Record, at dialect.Position, err error) {
	wanted := q.Limit
	for more := true; more && (wanted == 0 || len(all) < wanted); {
		if wanted > 0 {
			q.Limit = wanted - len(all)
		}
		page, err := s.Page(ctx, q)
		if at == (dialect.Position{}) {
			at = page.Position
		}
		if err != nil {
			return all, at, err
		}
		all, more = append(all, page.Records...), page.More
		if more {
			q.After = all[len(all)-1].Key
		}
		if q.Revision == 0 {
			q.Revision = at.Revision
		}
	}
	return all, at, nil
}

// mustList lists all that is live at a revision, 0 for the newest.
func mustList(t testing.TB, s *sqlstore.Store, revision int64) ([]string, dialect.Position) {
	t.Helper()
	state, at, err := list(t.Context(), s, sqlstore.Query{Revision: revision})
	if err != nil {
		t.Fatalf("list at revision %d: %v", revision, err)
	}
	return state, at
}

func revision(t testing.TB, s *sqlstore.Store) dialect.Position {
	t.Helper()
	at, err := s.Position(t.Context())
	harness.Must(t, err)
	return at
}
