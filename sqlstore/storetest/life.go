package storetest

import (
	"testing"
	"time"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// testLife looks for the creation of an object whose name others have had: in the log, in history, and when it was purged from there.
func testLife(t *testing.T, open Opener) {
	s := Open(t, open, keeping)
	const key = "tenant"
	is := func(what string, want sqlstore.Life) {
		t.Helper()
		if got, err := s.LifeOf(t.Context(), things, key); err != nil || got != want {
			t.Errorf("%s: it lives %+v, %v; want %+v", what, got, err, want)
		}
	}
	write := func(uid string, w *sqlstore.Write) *sqlstore.Record {
		w.UID = uid
		return must(t, s, w)
	}
	is("before all", sqlstore.Life{})
	r := write("first", put(key, `{"n":1}`, nil))
	is("created", sqlstore.Life{UID: "first", First: r.Revision, Whole: true})
	r = write("first", put(key, `{"n":2}`, r))
	gone := write("first", remove(r))
	is("deleted", sqlstore.Life{})
	born := write("second", put(key, `{"n":3}`, nil))
	r = write("second", put(key, `{"n":4}`, born))
	r = write("second", put(key, `{"n":5}`, r))
	whole := sqlstore.Life{UID: "second", First: born.Revision, Whole: true}
	is("created again", whole)
	compact(t, s, born.Revision+1)
	is("with its creation in history", whole)
	compact(t, s, r.Revision)
	is("with all but its last version in history", whole)
	_, err := s.Purge(t.Context(), things, key, sqlstore.Author{})
	harness.Must(t, err)
	purged, err := s.LifeOf(t.Context(), things, key)
	if err != nil || purged.UID != "second" || purged.Whole || purged.First != r.Revision || purged.Former >= gone.Revision {
		t.Errorf("purged: it lives %+v, %v", purged, err)
	}
	last, err := s.LastAt(t.Context(), time.Now())
	if err != nil || last != r.Revision {
		t.Errorf("the last revision is %d, %v; want %d", last, err, r.Revision)
	}

	// When an imported object was created, its row does not say.
	imported := put("imported", `{"n":1}`, nil)
	imported.UID = "third"
	revision, err := s.Write(sqlstore.WithAuthor(t.Context(), sqlstore.Author{User: sqlstore.ImportAuthor}), imported)
	harness.Must(t, err)
	if got, err := s.LifeOf(t.Context(), things, "imported"); err != nil || got != (sqlstore.Life{UID: "third", First: revision}) {
		t.Errorf("imported: it lives %+v, %v", got, err)
	}

	// Rows that have the name of those that record lost revisions are no such.
	lost := sqlstore.Resource{Group: "sqube.io", Name: "lost"}
	named := put("a", `{"n":1}`, nil)
	named.Resource = lost
	first := must(t, s, named)
	named = put("a", `{"n":2}`, first)
	named.Resource = lost
	second := must(t, s, named)
	compact(t, s, second.Revision)
	page, err := s.Page(t.Context(), sqlstore.Query{Resource: lost, Revision: first.Revision})
	if err != nil || len(page.Records) != 1 || string(page.Records[0].Value) != `{"n":1}` {
		t.Errorf("at revision %d, there are %v, %v", first.Revision, page.Records, err)
	}
}
