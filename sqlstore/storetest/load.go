package storetest

import (
	"errors"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// testLoad fills an empty log and serves it. A failed load leaves nothing behind, and a log with rows is rejected.
func testLoad(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	counter := dialect.Position{Revision: 1000, Compacted: 900}
	row := func(id, replacedBy int64, name string) *dialect.LogRow {
		return &dialect.LogRow{ID: id, ReplacedBy: replacedBy, Write: dialect.Write{
			Operation: dialect.Create, Resource: things.Name, Group: things.Group, Key: "default/" + name, Namespace: "default", Name: name,
			Labels: "{}", Fields: "{}", Value: []byte(`{"n":"` + name + `"}`), ExpiresAt: 1 << 50,
		}}
	}
	failed := errors.New("no more")
	err := engine.Load(t.Context(), counter, func(add func(*dialect.LogRow) error) error {
		return errors.Join(add(row(10, 0, "a")), failed)
	}, nil)
	if !errors.Is(err, failed) {
		t.Fatalf("a failing load ends with %v", err)
	}
	err = engine.Load(t.Context(), counter, func(add func(*dialect.LogRow) error) error {
		return errors.Join(add(row(10, 20, "a")), add(row(20, 0, "a")), add(row(30, 0, "b")))
	}, nil)
	harness.Must(t, err)
	if err := engine.Load(t.Context(), counter, func(func(*dialect.LogRow) error) error { return nil }, nil); !errors.Is(err, dialect.ErrNotEmpty) {
		t.Errorf("a second load ends with %v", err)
	}
	s := Start(t, engine, sqlstore.Options{})
	var got []string
	all, at, err := records(t.Context(), s, sqlstore.Query{Resource: things})
	for _, r := range all {
		got = append(got, string(r.Value))
	}
	if err != nil || len(got) != 2 || got[0] != `{"n":"a"}` || got[1] != `{"n":"b"}` {
		t.Errorf("the list has %q, %v", got, err)
	}
	if at.Revision != counter.Revision || at.Compacted != counter.Compacted {
		t.Errorf("the log is at %+v", at)
	}
	if r := must(t, s, put("c", "{}", nil)); r.Revision != counter.Revision+1 {
		t.Errorf("the next revision is %d", r.Revision)
	}
}
