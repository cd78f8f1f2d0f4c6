package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sqube/sqube/sqlstore"
)

// testBounds writes up to the bounds of a store and beyond.
func testBounds(t *testing.T, open Opener) {
	s := Start(t, OpenEngine(t, open(t)), sqlstore.Options{})
	first := must(t, s, put("first", "{}", nil))
	bounded := func(b sqlstore.Bounds) {
		t.Helper()
		if err := s.SetBounds(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(w *sqlstore.Write, setting string) bool {
		_, err := s.Write(t.Context(), w)
		var bound *sqlstore.BoundError
		return errors.As(err, &bound) && strings.Contains(err.Error(), setting)
	}
	bounded(sqlstore.Bounds{Objects: sqlstore.Bound{Limit: 2, Setting: "objects"}})
	second := must(t, s, put("second", "{}", nil))
	if !refused(put("third", "{}", nil), "objects") {
		t.Error("a third object is stored")
	}
	first = must(t, s, put("first", `{"v":2}`, first)) // no further object
	if _, err := s.Write(t.Context(), remove(second)); err != nil {
		t.Fatal(err)
	}
	must(t, s, put("third", "{}", nil))

	bounded(sqlstore.Bounds{Bytes: sqlstore.Bound{Limit: 1, Setting: "bytes"}})
	for name, w := range map[string]*sqlstore.Write{"create": put("fourth", "{}", nil), "update": put("first", `{"v":3}`, first)} {
		if !refused(w, "bytes") {
			t.Errorf("the %s is not refused", name)
		}
	}
	if _, err := s.Write(t.Context(), remove(first)); err != nil {
		t.Errorf("a deletion: %v", err)
	}

	bounded(sqlstore.Bounds{})
	// What is being deleted can still be updated for a while.
	going := must(t, s, put("going", "{}", nil))
	bounded(sqlstore.Bounds{Bytes: sqlstore.Bound{Limit: 4 << 20, Setting: "bytes"}})
	i := 0
	Eventually(t, "the database is as large as it may be", func() bool {
		i++
		return refused(put(fmt.Sprint("large-", i), `"`+strings.Repeat("x", 100_000)+`"`, nil), "bytes")
	})
	if !refused(put("going", `{"v":2}`, going), "bytes") {
		t.Error("an update is stored")
	}
	must(t, s, put("going", `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`, going))
}
