package sqlite_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/harness"
)

// TestSnapshotOfAMachine continues with a snapshot of a machine's disk from before its last commits. No revision is used twice,
// and those who know a lost one start over; all others continue.
func TestSnapshotOfAMachine(t *testing.T) {
	boot := func(id string) { t.Cleanup(sqlite.Reboot(id)) }
	resource := sqlstore.Resource{Name: "pods"}
	serve := func(path string) (*sqlite.Engine, *sqlstore.Store) {
		t.Helper()
		e := opened(t, path)
		return e, storetest.Start(t, e, sqlstore.Options{})
	}
	write := func(s *sqlstore.Store, keys ...string) (last int64) {
		t.Helper()
		for _, key := range keys {
			var err error
			last, err = s.Write(t.Context(), &sqlstore.Write{Operation: dialect.Create, Resource: resource, Key: key, Name: key, Labels: "{}", Fields: "{}", Value: []byte(`{}`)})
			harness.Must(t, err)
		}
		return last
	}
	// watch returns the keys that a watch from a revision gets.
	watch := func(s *sqlstore.Store, from int64) (keys []string, err error) {
		at, err := s.Position(t.Context())
		harness.Must(t, err)
		f := s.Follow(t.Context())
		defer f.Close()
		err = f.Replay(resource, "", nil, from, at.Revision, func(c *sqlstore.Change) error {
			keys = append(keys, c.Record.Key)
			f.Done(c)
			return nil
		})
		return keys, err
	}
	exactly := func(s *sqlstore.Store, revision int64) error {
		_, err := s.Page(t.Context(), sqlstore.Query{Resource: resource, Revision: revision})
		return err
	}

	path := filepath.Join(t.TempDir(), "sqube.db")
	boot("first")
	_, store := serve(path)
	first := write(store, "a")
	kept := write(store, "b")
	snapshot := copyFiles(t, path, "", "-wal")
	lost := write(store, "lost-1", "lost-2", "lost-3")
	closed(t, store)
	_, store = serve(path)
	if next := write(store, "same-boot"); next != lost+1 {
		t.Errorf("in the same boot, revision %d follows %d", next, lost)
	}
	closed(t, store)

	boot("second")
	_, store = serve(snapshot)
	if err := exactly(store, lost+1); !errors.Is(err, sqlstore.ErrCompacted) {
		t.Errorf("a list at a lost revision: %v", err)
	}
	c := write(store, "c")
	if c < lost+dialect.RevisionJump/2 {
		t.Errorf("after the restore, revision %d follows %d", c, lost)
	}
	for from, want := range map[int64][]string{first: {"b", "c"}, kept: {"c"}, c - 1: {"c"}, c: nil} {
		if keys, err := watch(store, from); err != nil || !slices.Equal(keys, want) {
			t.Errorf("a watch from revision %d gets %v, %v, not %v", from, keys, err, want)
		}
		if err := exactly(store, from); err != nil {
			t.Errorf("a list at revision %d: %v", from, err)
		}
	}
	for _, from := range []int64{kept + 1, lost, lost + 1, c - 2} {
		if keys, err := watch(store, from); !errors.Is(err, sqlstore.ErrCompacted) {
			t.Errorf("a watch from the lost revision %d gets %v, %v", from, keys, err)
		}
		if err := exactly(store, from); !errors.Is(err, sqlstore.ErrCompacted) {
			t.Errorf("a list at the lost revision %d: %v", from, err)
		}
	}
	closed(t, store)

	// The range is remembered, in the next boot too.
	_, store = serve(snapshot)
	if _, err := watch(store, lost); !errors.Is(err, sqlstore.ErrCompacted) {
		t.Errorf("after another start, a watch from a lost revision: %v", err)
	}
	closed(t, store)
	boot("third")
	_, store = serve(snapshot)
	d := write(store, "d")
	for from, fails := range map[int64]bool{kept: false, lost: true, c: false, c + 1: true, d: false} {
		if _, err := watch(store, from); errors.Is(err, sqlstore.ErrCompacted) != fails {
			t.Errorf("after the next boot, a watch from revision %d: %v", from, err)
		}
	}
}

// TestKilledWithHeartbeats continues with the files of a server that was killed while heartbeats had not been committed. They are lost,
// their revisions are never used again, and those who know one start over; all others continue.
func TestKilledWithHeartbeats(t *testing.T) {
	resource, other := sqlstore.Resource{Name: "leases"}, sqlstore.Resource{Name: "others"}
	path := filepath.Join(t.TempDir(), "sqube.db")
	for round := range 3 { // it is killed again and again
		e := opened(t, path)
		s := storetest.Start(t, e, sqlstore.Options{HeartbeatInterval: time.Hour, HeartbeatResource: resource})
		key := fmt.Sprintf("lease-%d", round)
		w := &sqlstore.Write{Operation: dialect.Create, Resource: resource, Key: key, Name: key, Labels: "{}", Fields: "{}", Value: []byte(`{}`)}
		kept, err := s.Write(t.Context(), w)
		harness.Must(t, err)
		storetest.AwaitInMemory(t, s, resource, &sqlstore.Record{Revision: kept, Key: key})
		last := kept
		for range dialect.MaxHeld {
			beat := *w
			beat.Operation, beat.Heartbeat, beat.Previous = dialect.Update, true, &sqlstore.Record{Revision: last, Key: key}
			if last, err = s.Write(t.Context(), &beat); err != nil {
				t.Fatal(err)
			}
		}
		path = copyFiles(t, path, "", "-wal")

		copied := opened(t, copyFiles(t, path, "", "-wal"))
		next := storetest.Start(t, copied, sqlstore.Options{HeartbeatResource: resource})
		found, at, err := next.Get(t.Context(), resource, key)
		if err != nil || found == nil || found.Revision != kept {
			t.Errorf("the object is %+v, %v, not at revision %d", found, err, kept)
		}
		if at.Revision <= last {
			t.Errorf("after the kill, the log is at revision %d, and %d was lost", at.Revision, last)
		}
		for from, want := range map[int64]error{kept: nil, kept + 1: sqlstore.ErrCompacted, last: sqlstore.ErrCompacted, at.Revision: nil} {
			f := next.Follow(t.Context())
			if err := f.Replay(other, "", nil, from, at.Revision, func(*sqlstore.Change) error { return nil }); !errors.Is(err, want) {
				t.Errorf("a watch from revision %d: %v, not %v", from, err, want)
			}
			if err := f.Replay(resource, "", nil, from, at.Revision, func(*sqlstore.Change) error { return nil }); (err == nil) != (from == at.Revision) {
				t.Errorf("a watch of heartbeats from revision %d: %v", from, err)
			}
			f.Close()
		}
	}
}
