package sqlstore

import (
	"math/rand/v2"
	"testing"

	"github.com/sqube/sqube/dialect"
)

// TestWritesWhileTheCacheShrinks writes to two collections that do not fit while they are made smaller. The cache keeps within its bound
// all the time, and each row is the one that was written last.
func TestWritesWhileTheCacheShrinks(t *testing.T) {
	const budget, rows = 2 << 20, 4000
	other := Resource{Name: "others"}
	c := newPods(t, budget, 0)
	_, _, f, _ := c.lookup(other, 0)
	c.fillPods(other, f, 1, 0)
	random := rand.New(rand.NewPCG(1, 2))
	newest := map[Resource]map[string]int64{indexed: {}, other: {}}
	passes := 0
	for revision := int64(2); revision < 20_000; revision++ {
		resource, i := indexed, random.IntN(rows)
		if revision%3 == 0 {
			resource = other
		}
		change := &Change{Resource: resource, Operation: dialect.Update, Record: *valued(revision, i)}
		newest[resource][change.Record.Key] = revision
		if revision%50 == 0 {
			change.Operation, change.Record = dialect.Delete, Record{Revision: revision, Key: change.Record.Key}
			delete(newest[resource], change.Record.Key)
		}
		c.apply(revision, []*Change{change})
		c.mu.Lock()
		if most := c.room() + budget/spareShare; c.bytes > most {
			t.Fatalf("rows take %d bytes, and may take %d", c.bytes, most)
		}
		if c.shrinking {
			passes++
		}
		if revision%1000 == 0 {
			for _, col := range c.collections {
				if col.rows == nil { // as if there had been room again
					col.retry = col.retry.Add(-refillAfter)
				}
			}
		}
		c.mu.Unlock()
		if revision%7 == 0 {
			c.lookup(resource, 0) // readers take snapshots
		}
	}
	c.sound(t)
	if passes == 0 {
		t.Error("nothing was written while the cache was made smaller")
	}
	for resource, want := range newest {
		snap, _, _, _ := c.lookup(resource, 0)
		if snap == nil {
			continue // it gave way
		}
		if snap.rows.Len() != len(want) {
			t.Errorf("%s has %d rows, want %d", resource.Name, snap.rows.Len(), len(want))
		}
		snap.rows.Scan(func(r *Record) bool {
			if whole := r.unpack(); want[r.Key] != r.Revision || whole.left == 0 && len(whole.Value) == 0 {
				t.Errorf("%s is at %d with %d bytes, want %d", r.Key, r.Revision, len(whole.Value), want[r.Key])
			}
			return true
		})
	}
	if c.newest() == nil {
		t.Error("all rows gave way")
	}
}
