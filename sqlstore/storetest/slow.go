package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// testSlowSubscriber makes more changes than wait for one subscriber.
func testSlowSubscriber(t *testing.T, open Opener) { fallBehind(t, open, 20, 500, "{}") }

// testSlowSubscriberOfLargeObjects makes few changes, but more bytes than wait
// for one subscriber.
func testSlowSubscriberOfLargeObjects(t *testing.T, open Opener) {
	fallBehind(t, open, 10, 4, `{"k":"`+strings.Repeat("x", 1<<20)+`"}`)
}

// fallBehind creates groups of objects: who does not read is ended, others are
// not disturbed, and the slow one can begin again where it was.
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
	if len(changes) != groups*size+1 {
		t.Errorf("the one that reads got %d changes, want %d", len(changes), groups*size+1)
	}
	if taken, err := slow.Drain(); !errors.Is(err, sqlstore.ErrSlow) {
		t.Errorf("the one that does not read got %d changes and %v", len(taken), err)
	}
	if err := context.Cause(follower.Context()); !errors.Is(err, sqlstore.ErrSlow) {
		t.Errorf("the follower that does not read ended with %v", err)
	}
	if _, current := slow.Progress(); current {
		t.Error("a subscription that was ended claims to have received all")
	}
	if taken, err := elsewhere.Drain(); len(taken) != 0 || err != nil {
		t.Errorf("one that nothing concerned got %d changes and %v", len(taken), err)
	}
	if at, current := elsewhere.Progress(); !current || at < changes[len(changes)-1].Record.Revision {
		t.Errorf("one that nothing concerned is at %d, %t", at, current)
	}
	follower.Close()
	if stats := s.Stats(); stats.Watches != 0 || stats.SlowWatches != 1 {
		t.Errorf("with nobody behind, watches hold %d bytes, and %d were ended", stats.Watches, stats.SlowWatches)
	}
	again, err := Follow(t.Context(), s, from)
	if err != nil {
		t.Fatal(err)
	}
	Equal(t, "the slow one's second try", ShowChanges(again), ShowChanges(changes))
}
