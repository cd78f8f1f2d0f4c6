package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// testGroupOfOneCommit gives the engine a group in which some writes conflict. Those fail, and the others land, each with the
// revision of its place in the group.
func testGroupOfOneCommit(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	s := Start(t, engine, sqlstore.Options{})
	kept := must(t, s, put("kept", `{"v":1}`, nil))
	updated := must(t, s, put("updated", `{"v":1}`, nil))
	deleted := must(t, s, put("deleted", `{"v":1}`, nil))
	old := must(t, s, put("old", `{"v":1}`, nil))
	current := must(t, s, put("old", `{"v":2}`, old))
	before := revision(t, s).Revision

	write := func(operation dialect.Operation, key string, replaces int64) dialect.Write {
		w := dialect.Write{Operation: operation, Group: things.Group, Resource: things.Name, Key: key, Name: key, Replaces: replaces, Labels: "{}", Fields: "{}"}
		if operation != dialect.Delete {
			w.Value = []byte(`{"v":3}`)
		}
		return w
	}
	group := []dialect.Write{
		write(dialect.Update, "updated", updated.Revision),
		write(dialect.Update, "updated", updated.Revision), // one of the two
		write(dialect.Update, "old", old.Revision),         // no longer current
		write(dialect.Delete, "old", old.Revision),
		write(dialect.Delete, "deleted", deleted.Revision),
		write(dialect.Update, "never", 1),  // never existed
		write(dialect.Create, "kept", 0),   // exists
		write(dialect.Create, "new", 0),    //
		write(dialect.Create, "new", 0),    // one of the two
		write(dialect.Create, "newer", 0),  //
		write(dialect.Update, "newer", 99), // 99 does not exist either
	}
	committed, err := engine.Commit(t.Context(), group[:10])
	harness.Must(t, err)
	if got, want := fmt.Sprint(committed.Before(), committed.Last), fmt.Sprint(before, before+10); got != want {
		t.Errorf("the group has the revisions after %s, want %s", got, want)
	}
	if want := []bool{true, false, false, false, true, false, false, true, false, true}; !slices.Equal(committed.Landed, want) {
		t.Errorf("landed %v, want %v", committed.Landed, want)
	}
	state, at := mustList(t, s, 0)
	Equal(t, "the state", state, []string{
		show("kept", kept.Revision, kept.Value),
		show("new", committed.Revision(7), []byte(`{"v":3}`)),
		show("newer", committed.Revision(9), []byte(`{"v":3}`)),
		show("old", current.Revision, current.Value),
		show("updated", committed.Revision(0), []byte(`{"v":3}`)),
	})
	if at.Revision != committed.Last {
		t.Errorf("the log is at %d, want %d", at.Revision, committed.Last)
	}

	// A group in which nothing lands still uses up its revisions.
	committed, err = engine.Commit(t.Context(), group[10:])
	if err != nil || committed.Landed[0] || committed.Before() != at.Revision {
		t.Errorf("a group of one conflict returned %+v, %v", committed, err)
	}
	Sound(t, engine)
}

// together commits writes in as few groups as possible: all arrive while an earlier commit is held up. It calls also when that
// commit goes on. It returns the errors of the writes.
func together(t *testing.T, s *sqlstore.Store, g *gate, writes []*sqlstore.Write, also ...func()) []error {
	t.Helper()
	var done sync.WaitGroup
	done.Go(func() {
		if _, err := s.Write(t.Context(), put("gate", `{}`, nil)); err != nil {
			t.Error(err)
		}
	})
	<-g.held
	var coming sync.WaitGroup
	errs := make([]error, len(writes))
	for i, w := range writes {
		coming.Add(1)
		done.Go(func() {
			coming.Done()
			_, errs[i] = s.Write(t.Context(), w)
		})
	}
	coming.Wait()
	for _, do := range also {
		done.Go(do)
	}
	close(g.opened)
	done.Wait()
	return errs
}

// testGroupOfWaitingWrites makes many writes wait, some of which conflict. Of those on the same version, exactly one wins.
func testGroupOfWaitingWrites(t *testing.T, open Opener) {
	g := newGate()
	engine := &Intercepted{Engine: OpenEngine(t, open(t)), BeforeCommit: g.before}
	s := Start(t, engine, sqlstore.Options{})
	const keys, rivals = 20, 5
	var writes []*sqlstore.Write
	for k := range keys {
		key := fmt.Sprintf("old-%d", k)
		previous := must(t, s, put(key, `{}`, nil))
		for i := range rivals {
			value := fmt.Sprintf(`{"rival":%d}`, i)
			writes = append(writes, put(key, value, previous), put(fmt.Sprintf("new-%d", k), value, nil), put(fmt.Sprintf("alone-%d-%d", k, i), value, nil))
		}
		writes = append(writes, remove(previous))
	}
	winners := map[string]int{}
	for i, err := range together(t, s, g, writes) {
		switch {
		case err == nil:
			winners[writes[i].Key]++
		case !errors.Is(err, sqlstore.ErrConflict):
			t.Errorf("%s: %v", writes[i].Key, err)
		}
	}
	for k := range keys {
		names := []string{fmt.Sprintf("old-%d", k), fmt.Sprintf("new-%d", k)}
		for i := range rivals {
			names = append(names, fmt.Sprintf("alone-%d-%d", k, i))
		}
		for _, key := range names {
			if winners[key] != 1 {
				t.Errorf("%d writes to %s succeeded, want 1", winners[key], key)
			}
		}
	}
	if g.largest() < 10 {
		t.Errorf("the largest group had %d writes", g.largest())
	}
	Sound(t, engine)
}

// testGroupCreatesWhatItReplaces puts creations of an existing key into one group with an update and a deletion of it. Whatever
// their order, the log must look as if they had been committed one by one.
func testGroupCreatesWhatItReplaces(t *testing.T, open Opener) {
	g := newGate()
	engine := &Intercepted{Engine: OpenEngine(t, open(t)), BeforeCommit: g.before}
	s := Start(t, engine, sqlstore.Options{})
	from := revision(t, s).Revision
	follower := StartFollow(t, s, from)
	const keys = 30
	var writes []*sqlstore.Write
	for k := range keys {
		key := fmt.Sprintf("key-%d", k)
		previous := must(t, s, put(key, `{"v":1}`, nil))
		replacing := put(key, `{"v":2}`, previous)
		if k%3 == 0 {
			replacing = remove(previous)
		}
		writes = append(writes, put(key, `{"v":"new"}`, nil), replacing, put(key, `{"v":"newer"}`, nil))
	}
	for i, err := range together(t, s, g, writes) {
		w := writes[i]
		switch {
		case err == nil || errors.Is(err, sqlstore.ErrConflict):
		default:
			t.Errorf("%s: %v", w.Key, err)
		}
		if w.Previous != nil && err != nil {
			t.Errorf("%s %s, which does not conflict: %v", w.Operation, w.Key, err)
		}
		if w.Operation == dialect.Update {
			r, _, getErr := s.Get(t.Context(), things, w.Key)
			if getErr != nil || r == nil || string(r.Value) != `{"v":2}` {
				t.Errorf("%s is %v, %v; want what the update wrote", w.Key, r, getErr)
			}
		}
	}
	Sound(t, engine)

	Finish(t, s, &History{})
	live := map[string]bool{}
	for _, c := range follower.Changes() {
		if exists := live[c.Record.Key]; exists == (c.Operation == dialect.Create) {
			t.Errorf("revision %d: %s of %s, whose existence is %t", c.Record.Revision, c.Operation, c.Record.Key, exists)
		}
		live[c.Record.Key] = c.Operation != dialect.Delete
	}
}

// testGroupWithAPoisonedWrite makes a group fail because of one write that the database rejects. Only that write fails.
func testGroupWithAPoisonedWrite(t *testing.T, open Opener) {
	g := newGate()
	poison := errors.New("this cannot be stored")
	engine := &Intercepted{Engine: OpenEngine(t, open(t))}
	engine.BeforeCommit = func(group []dialect.Write) error {
		if slices.ContainsFunc(group, func(w dialect.Write) bool { return w.Key == "poison" }) {
			return &dialect.Error{Op: "commit", Engine: "test", Err: poison}
		}
		return g.before(group)
	}
	s := Start(t, engine, sqlstore.Options{})
	writes := []*sqlstore.Write{put("poison", `{}`, nil)}
	for i := range 20 {
		writes = append(writes, put(fmt.Sprintf("good-%d", i), `{}`, nil))
	}
	for i, err := range together(t, s, g, writes) {
		if key := writes[i].Key; key == "poison" && !errors.Is(err, poison) || key != "poison" && err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}

	// Users and managers that text can't represent are stored as far as possible.
	author := sqlstore.Author{User: "a\xffb\x00c", FieldManager: "d\xffe\x00f"}
	if _, err := s.Write(sqlstore.WithAuthor(t.Context(), author), put("odd", `{}`, nil)); err != nil {
		t.Errorf("a write of the user %q: %v", author.User, err)
	}
}
