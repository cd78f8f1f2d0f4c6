package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// silent returns an engine that is unavailable for statements that contain the string in about, if that has one.
func silent(engine dialect.Engine, about *atomic.Pointer[string]) dialect.Engine {
	return &Intercepted{Engine: engine, BeforeQuery: func(_ context.Context, statement string) error {
		if about := about.Load(); about != nil && strings.Contains(statement, *about) {
			return &dialect.Error{Op: "query", Engine: "test", Err: dialect.ErrUnavailable}
		}
		return nil
	}}
}

// testUnreachable makes a database stop answering, and checks that the stats show for how long.
func testUnreachable(t *testing.T, open Opener) {
	var about atomic.Pointer[string]
	s := Start(t, silent(OpenEngine(t, open(t)), &about), sqlstore.Options{Log: slog.New(slog.DiscardHandler)})
	if stats := s.Stats(); stats.Unreachable != 0 || stats.Failures != 0 {
		t.Errorf("at first, the stats are %+v", stats)
	}
	every := ""
	about.Store(&every)
	var unreachable time.Duration
	for range 2 {
		if _, err := s.Position(t.Context()); !errors.Is(err, dialect.ErrUnavailable) {
			t.Fatal(err)
		}
		stats := s.Stats()
		if stats.Unreachable <= unreachable || stats.Failures == 0 {
			t.Errorf("after %s, the stats are %+v", unreachable, stats)
		}
		unreachable = stats.Unreachable
	}
	about.Store(nil)
	Eventually(t, "it answers again", func() bool {
		revision(t, s)
		return s.Stats().Unreachable == 0
	})
}

// testFullDisk makes the disk full for all but deletions: those succeed, even in a group with other writes. The database has
// answered, so it is not unreachable.
func testFullDisk(t *testing.T, open Opener) {
	g := newGate()
	engine := &Intercepted{Engine: OpenEngine(t, open(t)), BeforeCommit: func(group []dialect.Write) error {
		full := false
		select {
		case <-g.held:
			full = slices.ContainsFunc(group, func(w dialect.Write) bool { return w.Operation != dialect.Delete })
		default:
		}
		if full {
			return &dialect.Error{Op: "commit", Engine: "test", Err: dialect.ErrFull}
		}
		return g.before(group)
	}}
	s := Start(t, engine, sqlstore.Options{Log: slog.New(slog.DiscardHandler)})
	var kept, deleted []*sqlstore.Record
	for i := range 5 {
		kept = append(kept, must(t, s, put(fmt.Sprint("kept-", i), "{}", nil)))
		deleted = append(deleted, must(t, s, put(fmt.Sprint("deleted-", i), "{}", nil)))
	}
	var writes []*sqlstore.Write
	for i := range kept {
		writes = append(writes, put(kept[i].Key, `{"v":2}`, kept[i]), remove(deleted[i]), put(fmt.Sprint("new-", i), "{}", nil))
	}
	for i, err := range together(t, s, g, writes) {
		if isDeletion := i%3 == 1; isDeletion && err != nil || !isDeletion && !errors.Is(err, dialect.ErrFull) {
			t.Errorf("%s of %s: %v", writes[i].Operation, writes[i].Key, err)
		}
	}
	if stats := s.Stats(); stats.Unreachable != 0 || stats.Failures == 0 {
		t.Errorf("the stats are %+v", stats)
	}
}

// testUnread writes from another process what can't be read for a while, and checks that the stats show for how long.
func testUnread(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	var about atomic.Pointer[string]
	s := Start(t, silent(engine, &about), sqlstore.Options{Log: slog.New(slog.DiscardHandler)})
	h := &History{}
	w := put("changed", `{}`, nil)
	r := must(t, s, w)
	h.Add(t, w, r.Revision)
	log := "FROM log"
	about.Store(&log)
	commitUnseen(t, engine, h, r, 3)
	must(t, s, put("known", `{}`, nil)) // shows the store that rows are missing
	var unread time.Duration
	Eventually(t, "the log is ahead of what was read", func() bool {
		before := unread
		unread = s.Stats().TailLag
		return before > 0 && unread > before
	})
	about.Store(nil)
	Eventually(t, "it has caught up", func() bool { return s.Stats().TailLag == 0 })
}
