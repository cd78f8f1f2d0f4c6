package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// testSlowSubscriber makes more changes than can be queued for one subscriber.
func testSlowSubscriber(t *testing.T, open Opener) { fallBehind(t, open, 20, 500, "{}") }

// testSlowSubscriberOfLargeObjects makes few changes, but more bytes than can be queued for one subscriber.
func testSlowSubscriberOfLargeObjects(t *testing.T, open Opener) {
	fallBehind(t, open, 10, 4, `{"k":"`+strings.Repeat("x", 1<<20)+`"}`)
}

// fallBehind creates groups of objects. A subscriber that does not read is ended, others are unaffected, and the slow one can
// resume where it stopped.
func fallBehind(t *testing.T, open Opener, groups, size int, value string) {
	engine := OpenEngine(t, open(t))
	s := Start(t, engine, sqlstore.Options{})
	from := revision(t, s).Revision
	follower, slow := subscribe(t, s, "")
	_, elsewhere := subscribe(t, s, "elsewhere/")
	reading := StartFollow(t, s, from)

	for g := range groups {
		group := make([]dialect.Write, size)
		for i := range group {
			group[i] = dialect.Write{Operation: dialect.Create, Group: things.Group, Resource: things.Name, Key: fmt.Sprintf("%d/%d", g, i), Labels: "{}", Fields: "{}", Value: []byte(value)}
		}
		if _, err := engine.Commit(t.Context(), group); err != nil {
			t.Fatal(err)
		}
	}
	Finish(t, s, &History{})

	changes := reading.Changes()
	awaitTold(t, elsewhere, changes[len(changes)-1].Record.Revision)
	if len(changes) != groups*size+1 {
		t.Errorf("the reading subscriber got %d changes, want %d", len(changes), groups*size+1)
	}
	if taken, err := slow.Drain(); !errors.Is(err, sqlstore.ErrSlow) {
		t.Errorf("the slow subscriber got %d changes and %v", len(taken), err)
	}
	if err := context.Cause(follower.Context()); !errors.Is(err, sqlstore.ErrSlow) {
		t.Errorf("the slow follower ended with %v", err)
	}
	if _, current := slow.Progress(); current {
		t.Error("an ended subscription claims to have received all changes")
	}
	if taken, err := elsewhere.Drain(); len(taken) != 0 || err != nil {
		t.Errorf("an unconcerned subscription got %d changes and %v", len(taken), err)
	}
	if at, current := elsewhere.Progress(); !current || at < changes[len(changes)-1].Record.Revision {
		t.Errorf("an unconcerned subscription is at %d, %t", at, current)
	}
	follower.Close()
	if stats := s.Stats(); stats.Watches != 0 || stats.SlowWatches != 1 {
		t.Errorf("without slow watches, watches hold %d bytes, and %d were ended", stats.Watches, stats.SlowWatches)
	}
	again, err := Follow(t.Context(), s, from)
	harness.Must(t, err)
	Equal(t, "the slow subscriber's second try", ShowChanges(again), ShowChanges(changes))
}
