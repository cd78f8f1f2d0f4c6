package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/sqlstore/inspect"
	"github.com/sqube/sqube/test/harness"
)

// testRestore loads a log as it was at some revisions into others, with its history: versions in blocks, some of which go on after the revision,
// and others that are still in the log. Each has the states before the revision, also after further writes, and none between it and its counter.
func testRestore(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	s := Start(t, engine, keeping)
	h := &History{}
	Load{Writers: 4, Writes: 30, Keys: 10}.Run(t, s, h)
	newest := revision(t, s).Revision
	compact(t, s, newest*2/3)
	for _, at := range []int64{newest / 4, newest * 2 / 3, newest * 5 / 6, newest} {
		target := restoreTo(t, open, engine, at, newest+1000)
		restored := Start(t, target, keeping)
		isRestored(t, restored, h, at)
		live, _, err := records(t.Context(), restored, sqlstore.Query{Resource: things})
		harness.Must(t, err)
		var last *sqlstore.Record
		for _, r := range live {
			last = must(t, restored, put(r.Key, "{}", r))
		}
		compact(t, restored, last.Revision)
		isRestored(t, restored, h, at)
		again := Start(t, restoreTo(t, open, target, last.Revision, last.Revision+1000), keeping)
		isRestored(t, again, h, at)
	}
}

// restoreTo fills a database with what another one had at a revision, and jumps to a later one.
func restoreTo(t *testing.T, open Opener, from dialect.Engine, at, jump int64) dialect.Engine {
	t.Helper()
	target := OpenEngine(t, open(t))
	past, replaced := inspect.Past(t.Context(), from, at, func(err error) { t.Error(err) })
	err := target.Load(t.Context(), dialect.Position{Revision: jump, Compacted: jump}, func(add func(*dialect.LogRow) error) error {
		return errors.Join(inspect.Snapshot(t.Context(), from, at, add), replaced(add))
	}, past)
	harness.Must(t, err)
	return target
}

// isRestored reads the states at all revisions up to one, and the changes, and checks that the later ones are lost.
func isRestored(t *testing.T, s *sqlstore.Store, h *History, upTo int64) {
	t.Helper()
	for _, at := range h.Revisions(1, upTo) {
		got, err := pastPages(t, s, sqlstore.Query{Revision: at})
		if err != nil {
			t.Fatalf("the state at %d, restored to %d: %v", at, upTo, err)
		}
		Equal(t, fmt.Sprintf("the state at %d, restored to %d", at, upTo), got, h.State(at))
	}
	checkChanges(t, s, h, history.Query{Before: upTo + 1})
	for _, at := range []int64{upTo + 1, upTo + 500} {
		if got, err := pastPages(t, s, sqlstore.Query{Revision: at}); !errors.Is(err, sqlstore.ErrCompacted) {
			t.Errorf("the state at %d, restored to %d, is %q, %v", at, upTo, got, err)
		}
	}
}
