package logbackup

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// object returns an object of the databases in these tests.
func object(name string) inspect.Object {
	return inspect.Object{Resource: sqlstore.Resource{Name: "secrets"}, Namespaces: []string{"default", ""}, Name: name}
}

// TestHistory writes rows, backs them up with failures and restarts, compacts them, and reads every version of every object.
func TestHistory(t *testing.T) {
	for seed := range uint64(2) {
		d := newDatabase(t, seed)
		d.transactions = true
		for range 10 {
			d.write(t)
		}
		place := faulty{folder(t.TempDir()), d.random}
		d.followed(t, place, Options{Past: true}, 60, func(f *Follower) {
			if _, err := d.Compact(t.Context(), f.seen-int64(d.random.IntN(3)), 1000, nil); err != nil {
				t.Fatal(err)
			}
		})
		d.follow(t, place.folder, Options{Past: true})
		for key, want := range d.versions {
			var got []int64
			err := History(t.Context(), place.folder, object(key[8:]), func(v *inspect.Version) error {
				got = append(got, v.ID)
				if last := len(got) - 2; v.Replaces != 0 && (v.Previous == nil || last < 0 || got[last] != v.Replaces) {
					return fmt.Errorf("%d replaces %d, whose value is missing", v.ID, v.Replaces)
				}
				return nil
			})
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("seed %d: want versions\n%v of %s, got\n%v, %v", seed, want, key, got, err)
			}
		}
		for revision := d.newest; revision > 0; revision -= 10 + d.random.Int64N(20) {
			d.shows(t, place.folder, revision)
		}
		if err := History(t.Context(), place.folder, object("none"), nil); !errors.Is(err, inspect.ErrUnknown) {
			t.Errorf("the history of an object that never existed: %v", err)
		}
		if _, err := At(t.Context(), place.folder, object("1"), d.newest+1); err == nil || errors.Is(err, inspect.ErrAbsent) {
			t.Errorf("at a future revision: %v", err)
		}
	}
}

// shows checks the state of each object at a revision.
func (d *database) shows(t *testing.T, place Place, revision int64) {
	t.Helper()
	for key := range d.versions {
		v, err := At(t.Context(), place, object(key[8:]), revision)
		want, exists := d.states[revision][key]
		if !exists && errors.Is(err, inspect.ErrAbsent) {
			continue
		}
		if err != nil || !exists || want != d.states[v.ID][key] || d.states[d.before[v.ID]][key] == want {
			t.Errorf("at revision %d %s was %q, and is shown as %+v, %v", revision, key, want, v, err)
		}
	}
}

// TestPastFromWithinATransaction begins a backup with the oldest revision of a database, which is within a transaction.
func TestPastFromWithinATransaction(t *testing.T) {
	d := newDatabase(t, 1)
	d.transactions = true
	within := int64(0)
	for range 20 {
		d.write(t)
		if d.before[d.newest] < d.newest-3 {
			within = d.newest - 1
		}
	}
	if _, err := d.Compact(t.Context(), within, 1000, nil); err != nil {
		t.Fatal(err)
	}
	place := folder(t.TempDir())
	d.follow(t, place, Options{Past: true})
	if from := opened(t, place).Spans[0].From; from != within+1 {
		t.Errorf("the backup begins at %d, want %d, the end of the transaction", from, within+1)
	}
	d.restores(t, place, within+1, false)
}
