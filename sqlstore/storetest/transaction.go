package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// limits are more than the transactions of most tests need.
var limits = sqlstore.TransactionLimits{Objects: 2000, Bytes: 64 << 20}

// begin begins a transaction and returns a context for what it does.
func begin(t testing.TB, s *sqlstore.Store, name string) (*sqlstore.Transaction, context.Context) {
	t.Helper()
	tx, err := s.Begin(t.Context(), name, limits)
	harness.Must(t, err)
	return tx, sqlstore.WithTransaction(t.Context(), tx)
}

// commit commits a transaction, and returns the revision of its record.
func commit(ctx context.Context, tx *sqlstore.Transaction) (record int64, err error) {
	return tx.Commit(ctx, time.Now().Add(time.Hour).UnixMilli(), func([]sqlstore.Gathered) ([]byte, error) { return []byte(`{}`), nil })
}

// written writes w in a transaction and returns the record that this reads from then on.
func written(t testing.TB, s *sqlstore.Store, ctx context.Context, w *sqlstore.Write) *sqlstore.Record {
	t.Helper()
	revision, err := s.Write(ctx, w)
	harness.Must(t, err)
	if !sqlstore.IsProvisional(revision) {
		t.Errorf("%s has the revision %d before the commit", w.Key, revision)
	}
	r, _, err := s.Get(ctx, things, w.Key)
	harness.Must(t, err)
	if w.Operation == dialect.Delete {
		if r != nil {
			t.Errorf("%s is still there: %v", w.Key, r)
		}
		return nil
	}
	if r == nil || r.Revision != revision || string(r.Value) != string(w.Value) {
		t.Fatalf("%s is %v after it was written at %d", w.Key, r, revision)
	}
	return r
}

// testTransaction writes in a transaction in every way. It reads what it has written; others see nothing until the commit, and then all of
// it, of each object the last version.
func testTransaction(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	s := Start(t, engine, sqlstore.Options{})
	updated, deleted, replaced := must(t, s, put("updated", `{"v":1}`, nil)), must(t, s, put("deleted", `{"v":1}`, nil)), must(t, s, put("replaced", `{"v":1}`, nil))
	untouched := must(t, s, put("untouched", `{"v":1}`, nil))
	before, at := mustList(t, s, 0)
	follower := StartFollow(t, s, at.Revision)

	tx, ctx := begin(t, s, "all-kinds")
	created := written(t, s, ctx, put("created", `{"v":1}`, nil))
	written(t, s, ctx, put("created", `{"v":2}`, created))
	passing := written(t, s, ctx, put("passing", `{"v":1}`, nil))
	written(t, s, ctx, remove(passing))
	again := written(t, s, ctx, put("updated", `{"v":2}`, updated))
	written(t, s, ctx, put("updated", `{"v":3}`, again))
	written(t, s, ctx, remove(deleted))
	written(t, s, ctx, remove(replaced))
	written(t, s, ctx, put("replaced", `{"v":"new"}`, nil))
	for name, w := range map[string]*sqlstore.Write{
		"an update of what it has updated": put("updated", `{}`, updated), "the creation of what it has created": put("created", `{}`, nil),
		"the creation of what there is": put("untouched", `{}`, nil), "an update of what it has deleted": put("deleted", `{}`, deleted),
	} {
		if _, err := s.Write(ctx, w); !errors.Is(err, sqlstore.ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n, err := s.Count(ctx, sqlstore.Query{Resource: things}); err != nil || n != 4 {
		t.Errorf("it counts %d objects, %v", n, err)
	}
	if state, _ := mustList(t, s, 0); !slices.Equal(state, before) {
		t.Errorf("before the commit, others see %v", state)
	}
	if wide := must(t, s, put("meanwhile", `{}`, nil)); wide == nil {
		t.Error("no other write succeeds while the transaction is open")
	}
	if r, _, err := s.Get(ctx, things, "meanwhile"); err != nil || r != nil {
		t.Errorf("it reads what was written after its begin: %v, %v", r, err)
	}

	record, err := commit(ctx, tx)
	harness.Must(t, err)
	if _, err := s.Write(ctx, put("late", `{}`, nil)); !errors.Is(err, sqlstore.ErrTransactionEnded) {
		t.Errorf("a write after the commit: %v", err)
	}
	state, _ := mustList(t, s, 0)
	Equal(t, "the state", state, []string{
		show("created", record+1, []byte(`{"v":2}`)), show("meanwhile", record-1, []byte(`{}`)), show("replaced", record+5, []byte(`{"v":"new"}`)),
		show("untouched", untouched.Revision, []byte(`{"v":1}`)), show("updated", record+2, []byte(`{"v":3}`)),
	})
	must(t, s, Last())
	Equal(t, "the watch", ShowChanges(follower.Changes()), []string{
		showChange("create", &sqlstore.Record{Key: "meanwhile", Revision: record - 1, Value: []byte(`{}`)}, nil),
		showChange("create", &sqlstore.Record{Key: "created", Revision: record + 1, Value: []byte(`{"v":2}`)}, nil),
		showChange("update", &sqlstore.Record{Key: "updated", Revision: record + 2, Value: []byte(`{"v":3}`)}, updated),
		showChange("delete", &sqlstore.Record{Key: "deleted", Revision: record + 3}, deleted),
		showChange("delete", &sqlstore.Record{Key: "replaced", Revision: record + 4}, replaced),
		showChange("create", &sqlstore.Record{Key: "replaced", Revision: record + 5, Value: []byte(`{"v":"new"}`)}, nil),
		showChange("create", &sqlstore.Record{Key: lastKey, Revision: record + 6, Value: []byte(`{"last":true}`)}, nil),
	})
	found, _, err := s.Get(t.Context(), sqlstore.Transactions, "all-kinds")
	if err != nil || found == nil || found.Revision != record || found.Rows() != 5 {
		t.Errorf("its record is %v, %v", found, err)
	}
	checkWhole(t, s, record, record+5)
	Sound(t, engine)
}

// checkWhole checks that a transaction is from first to last, before and after its versions have left the log.
func checkWhole(t *testing.T, s *sqlstore.Store, first, last int64) {
	t.Helper()
	for revision := first - 1; revision <= last+1; revision++ {
		begin, end, err := s.TransactionAt(t.Context(), revision)
		within := revision >= first && revision <= last
		if err != nil || within != (begin == first && end == last) {
			t.Errorf("revision %d is in a transaction from %d to %d, %v; the transaction is from %d to %d", revision, begin, end, err, first, last)
		}
	}
}

// testTransactionConflicts makes others change what a transaction stands on, before its commit. Then nothing of it is written.
func testTransactionConflicts(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	s := Start(t, engine, sqlstore.Options{})
	for name, test := range map[string]struct {
		does     func(t *testing.T, ctx context.Context, there *sqlstore.Record)
		others   func(there *sqlstore.Record) *sqlstore.Write
		conflict bool
	}{
		"an update of what others have updated": {
			func(t *testing.T, ctx context.Context, there *sqlstore.Record) {
				written(t, s, ctx, put(there.Key, `{"v":2}`, there))
			},
			func(there *sqlstore.Record) *sqlstore.Write { return put(there.Key, `{"other":1}`, there) }, true,
		},
		"a deletion of what others have updated": {
			func(t *testing.T, ctx context.Context, there *sqlstore.Record) { written(t, s, ctx, remove(there)) },
			func(there *sqlstore.Record) *sqlstore.Write { return put(there.Key, `{"other":1}`, there) }, true,
		},
		"an update of what others have deleted": {
			func(t *testing.T, ctx context.Context, there *sqlstore.Record) {
				written(t, s, ctx, put(there.Key, `{"v":2}`, there))
			},
			remove, true,
		},
		"a creation of what others have created": {
			func(t *testing.T, ctx context.Context, there *sqlstore.Record) {
				written(t, s, ctx, put(there.Key+"-new", `{"v":2}`, nil))
			},
			func(there *sqlstore.Record) *sqlstore.Write { return put(there.Key+"-new", `{"other":1}`, nil) }, true,
		},
		"a creation and deletion of what others have created": {
			func(t *testing.T, ctx context.Context, there *sqlstore.Record) {
				written(t, s, ctx, remove(written(t, s, ctx, put(there.Key+"-new", `{"v":2}`, nil))))
			},
			func(there *sqlstore.Record) *sqlstore.Write { return put(there.Key+"-new", `{"other":1}`, nil) }, true,
		},
		"a requirement that others have updated": {
			func(t *testing.T, ctx context.Context, there *sqlstore.Record) { required(t, s, ctx, there.Key) },
			func(there *sqlstore.Record) *sqlstore.Write { return put(there.Key, `{"other":1}`, there) }, true,
		},
		"a requirement that others have deleted": {
			func(t *testing.T, ctx context.Context, there *sqlstore.Record) { required(t, s, ctx, there.Key) }, remove, true,
		},
		"an absence that others have ended": {
			func(t *testing.T, ctx context.Context, there *sqlstore.Record) { required(t, s, ctx, there.Key+"-new") },
			func(there *sqlstore.Record) *sqlstore.Write { return put(there.Key+"-new", `{"other":1}`, nil) }, true,
		},
		"a read that requires nothing": {
			func(t *testing.T, ctx context.Context, there *sqlstore.Record) {
				_, _, err := s.Get(ctx, things, there.Key)
				harness.Must(t, err)
			},
			func(there *sqlstore.Record) *sqlstore.Write { return put(there.Key, `{"other":1}`, there) }, false,
		},
		"a requirement that is met": {
			func(t *testing.T, ctx context.Context, there *sqlstore.Record) {
				required(t, s, ctx, there.Key)
				required(t, s, ctx, there.Key+"-new")
			},
			func(there *sqlstore.Record) *sqlstore.Write { return put(there.Key+"-else", `{"other":1}`, nil) }, false,
		},
		"its name": {
			func(*testing.T, context.Context, *sqlstore.Record) {},
			func(there *sqlstore.Record) *sqlstore.Write {
				return &sqlstore.Write{Operation: dialect.Create, Resource: sqlstore.Transactions, Key: there.Key, Name: there.Key, Labels: "{}", Fields: "{}", Value: []byte(`{}`)}
			}, true,
		},
	} {
		key := strings.ReplaceAll(name, " ", "-")
		there := must(t, s, put(key, `{"v":1}`, nil))
		tx, ctx := begin(t, s, key)
		written(t, s, ctx, put(key+"-first", `{"v":1}`, nil))
		test.does(t, ctx, there)
		written(t, s, ctx, put(key+"-last", `{"v":1}`, nil))
		must(t, s, test.others(there))
		before, at := mustList(t, s, 0)
		_, err := commit(ctx, tx)
		switch state, now := mustList(t, s, 0); {
		case test.conflict && (!errors.Is(err, sqlstore.ErrConflict) || !slices.Equal(state, before) || now.Revision != at.Revision):
			t.Errorf("%s: %v, and at %d instead of %d: %v", name, err, now.Revision, at.Revision, state)
		case !test.conflict && (err != nil || len(state) != len(before)+2):
			t.Errorf("%s: %v; then there is %v", name, err, state)
		}
	}
	Sound(t, engine)
}

// required reads an object that the transaction then requires to remain as it is.
func required(t *testing.T, s *sqlstore.Store, ctx context.Context, key string) {
	t.Helper()
	_, _, err := s.Get(sqlstore.WithRequired(ctx), things, key)
	harness.Must(t, err)
}

// testTransactionLimits fills a transaction to its limits. What does not fit is refused, and the rest can be committed.
func testTransactionLimits(t *testing.T, open Opener) {
	s := Open(t, open, sqlstore.Options{})
	tx, err := s.Begin(t.Context(), "full", sqlstore.TransactionLimits{Objects: 3, Bytes: 2 << 20})
	harness.Must(t, err)
	ctx := sqlstore.WithTransaction(t.Context(), tx)
	half := `{"v":"` + strings.Repeat("x", 1<<20-20) + `"}`
	first := written(t, s, ctx, put("first", half, nil))
	for range 5 {
		first = written(t, s, ctx, put("first", half, first)) // which is one object, of that size
	}
	second := written(t, s, ctx, put("second", half, nil))
	if _, err := s.Write(ctx, put("third", half, nil)); !errors.Is(err, sqlstore.ErrTransactionTooLarge) {
		t.Errorf("beyond its bytes: %v", err)
	}
	written(t, s, ctx, put("second", `{}`, second))
	written(t, s, ctx, put("third", half, nil))
	if _, err := s.Write(ctx, put("fourth", `{}`, nil)); !errors.Is(err, sqlstore.ErrTransactionTooLarge) {
		t.Errorf("beyond its objects: %v", err)
	}
	if _, _, err := s.Get(sqlstore.WithRequired(ctx), things, "fourth"); !errors.Is(err, sqlstore.ErrTransactionTooLarge) {
		t.Errorf("a requirement beyond its objects: %v", err)
	}
	record, err := commit(ctx, tx)
	harness.Must(t, err)
	state, _ := mustList(t, s, 0)
	Equal(t, "the state", state, []string{show("first", record+1, []byte(half)), show("second", record+2, []byte(`{}`)), show("third", record+3, []byte(half))})
}

// testTransactionChoices lists and counts within a transaction what random selectors select, while it writes. After the commit, this is
// what there is.
func testTransactionChoices(t *testing.T, open Opener) {
	cachedAndNot(func(t *testing.T, s *sqlstore.Store) {
		var tx *sqlstore.Transaction
		var ctx context.Context
		now := proveChoices(t, s, func() context.Context {
			tx, ctx = begin(t, s, "choices")
			return ctx
		})
		record, err := commit(ctx, tx)
		harness.Must(t, err)
		all, _, err := records(t.Context(), s, sqlstore.Query{Resource: things})
		harness.Must(t, err)
		var got, want []string
		for _, r := range all {
			got = append(got, fmt.Sprintf("%s=%s", r.Key, r.Value))
			if r.Revision > revision(t, s).Revision || sqlstore.IsProvisional(r.Revision) {
				t.Errorf("%s is at %d; the transaction is at %d", r.Key, r.Revision, record)
			}
		}
		for _, key := range slices.Sorted(maps.Keys(now.objects)) {
			want = append(want, key+"="+now.objects[key].value)
		}
		Equal(t, "after the commit", got, want)
	})(t, open)
}

// testTransactionAtOnce writes and reads in a transaction from several goroutines, while others write beside it.
func testTransactionAtOnce(t *testing.T, open Opener) {
	s := Open(t, open, sqlstore.Options{})
	const writers, objects = 8, 20
	for i := range writers {
		must(t, s, put(fmt.Sprintf("%d/old", i), `{}`, nil))
	}
	tx, ctx := begin(t, s, "at-once")
	var work sync.WaitGroup
	for i := range writers {
		prefix := fmt.Sprintf("%d/", i)
		work.Go(func() {
			for n := range objects {
				if _, err := s.Write(ctx, put(fmt.Sprintf("%s%02d", prefix, n), `{}`, nil)); err != nil {
					t.Error(err)
				}
				q := sqlstore.Query{Resource: things, Prefix: prefix}
				page, err := s.Page(ctx, q)
				count, countErr := s.Count(ctx, q)
				if err != nil || countErr != nil || len(page.Records) != n+2 || count != int64(n+2) {
					t.Errorf("after %d creations there are %d objects, and %d counted, %v, %v", n+1, len(page.Records), count, err, countErr)
				}
			}
			old, _, err := s.Get(ctx, things, prefix+"old")
			if err == nil {
				_, err = s.Write(ctx, remove(old))
			}
			if err != nil {
				t.Error(err)
			}
		})
		work.Go(func() { must(t, s, put(prefix+"beside", `{}`, nil)) })
	}
	work.Wait()
	if _, err := commit(ctx, tx); err != nil {
		t.Error(err)
	}
	if state, _ := mustList(t, s, 0); len(state) != writers*(objects+1) {
		t.Errorf("there are %d objects: %v", len(state), state)
	}
}

// testTransactionAndHeartbeats commits transactions while heartbeats are held. They come before it in the log, and one of what it requires is a
// conflict.
func testTransactionAndHeartbeats(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	s, lease := beating(t, engine)
	other := must(t, s, put("other-lease", `{}`, nil))
	AwaitInMemory(t, s, things, other)
	watched := watching(t, s)
	lease = must(t, s, beat(lease, 1))

	tx, ctx := begin(t, s, "fenced")
	found, _, err := s.Get(sqlstore.WithRequired(ctx), things, "lease")
	if err != nil || found == nil || found.Revision != lease.Revision {
		t.Fatalf("the transaction reads %v, %v; want the last heartbeat, %d", found, err, lease.Revision)
	}
	written(t, s, ctx, put("made", `{}`, nil))
	beside := must(t, s, beat(other, 2))
	record, err := commit(ctx, tx)
	harness.Must(t, err)
	if record != beside.Revision+1 {
		t.Errorf("the transaction is at %d, want %d, behind the held heartbeat", record, beside.Revision+1)
	}

	tx, ctx = begin(t, s, "late")
	required(t, s, ctx, "lease")
	written(t, s, ctx, put("not-made", `{}`, nil))
	late := must(t, s, beat(lease, 3))
	if _, err := commit(ctx, tx); !errors.Is(err, sqlstore.ErrConflict) {
		t.Errorf("after a heartbeat of what it requires: %v", err)
	}
	want := []int64{lease.Revision, beside.Revision, record + 1, late.Revision}
	if seen := watched(late.Revision); fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("the watch has %v, want %v", seen, want)
	}
	Sound(t, engine)
}
