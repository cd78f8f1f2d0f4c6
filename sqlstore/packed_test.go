package sqlstore

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sqube/sqube/dialect"
)

// valued is row, with a value that resembles those of other rows.
func valued(revision int64, i int) *Record {
	r := row(revision, i)
	r.Value = fmt.Appendf(nil, `{"metadata":{"name":"pod-%05d","uid":"%d-%d"},"spec":{"nodeName":"node-%d"},"filler":%q}`,
		i, revision, i*7919, i%200, strings.Repeat("abcdefg hijklmn ", 50))
	return r
}

// TestValuesArePacked reads a collection whose values don't fit into memory. They are kept compressed, survive changes, and give
// way to rows.
func TestValuesArePacked(t *testing.T) {
	create := func(c *cache, from, to int) {
		for i := from; i < to; i++ {
			revision := int64(i) + 2
			c.apply(revision, []*Change{{Resource: indexed, Operation: dialect.Create, Record: *valued(revision, i)}})
		}
	}
	packed := func(t *testing.T, c *cache) (n int) {
		t.Helper()
		c.newest().rows.Scan(func(r *Record) bool {
			if whole := r.unpack(); whole.left == 0 {
				n++
				if want := valued(r.Revision, int(r.Revision)-2); r.Key == want.Key && string(whole.Value) != string(want.Value) {
					t.Errorf("%s has the value %s, want %s", r.Key, whole.Value, want.Value)
				}
			}
			return true
		})
		c.sound(t)
		return n
	}
	const budget = 2 << 20
	synctest.Test(t, func(t *testing.T) {
		c := newPods(t, budget, 0)
		create(c, 0, 200)
		c.hasIndex("app=7", "")
		create(c, 200, 3000)
		if snap := c.newest(); !snap.bare || snap.rows.Len() != 3000 {
			t.Fatalf("%d rows are in memory, without their values: %t", snap.rows.Len(), snap.bare)
		}
		if !c.hasIndex("app=7", "") {
			t.Error("the memory freed by the values is not used for an index")
		}
		if n := packed(t, c); n != 3000 {
			t.Errorf("%d values of 3000 are kept", n)
		}
		c.apply(4000, []*Change{
			{Resource: indexed, Operation: dialect.Update, Record: *valued(3999, 5), Previous: valued(7, 5)},
			{Resource: indexed, Operation: dialect.Delete, Record: Record{Revision: 4000, Key: row(0, 6).Key}, Previous: valued(8, 6)},
		})
		if r, _ := c.newest().rows.Get(row(0, 5)); r == nil || string(r.unpack().Value) != string(valued(3999, 5).Value) {
			t.Errorf("a replaced row is %+v", r)
		}
		if n := packed(t, c); n != 2999 {
			t.Errorf("%d values of 2999 are kept", n)
		}
		create(c, 4000, 6000) // more than fit
		snap := c.newest()
		if snap == nil || snap.rows.Len() != 4999 {
			t.Fatal("rows gave way to values")
		}
		if n := packed(t, c); n > 4500 {
			t.Errorf("%d values of 4999 are kept", n)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := newPods(t, budget, 0)
		create(c, 0, 3000)
		c.reset(4000) // while they are packed
		synctest.Wait()
		c.sound(t)
	})
	synctest.Test(t, func(t *testing.T) {
		c := newCache(budget, 1)
		_, _, f, _ := c.lookup(indexed, 0)
		c.fill(indexed, f, func(add func(*Record) error) (int64, error) {
			for i := range 3000 {
				if err := add(valued(int64(i)+2, i)); err != nil {
					return 0, err
				}
			}
			return 3002, nil
		})
		if n := packed(t, c); n != 3000 {
			t.Errorf("%d values of 3000 that were read from the log are kept", n)
		}
	})
}
