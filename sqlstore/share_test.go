package sqlstore

import (
	"maps"
	"slices"
	"testing"
)

// TestSurplus has who has most give way: a user in many namespaces, many users of one namespace, and the heaviest of those who share both.
func TestSurplus(t *testing.T) {
	many := func(n int, of func(name string) share) (all []share) {
		for i := range n {
			all = append(all, of(string(rune('a'+i))))
		}
		return all
	}
	small := []share{{"shop", "bob", 100}, {"", "admin", 50}}
	for _, test := range []struct {
		what   string
		shares []share
		excess int64
		spared int // how many of the first keep all
	}{
		{"one user and namespace", append(slices.Clone(small), share{"tenant", "alice", 10_000}), 9_000, 2},
		{"a user in many namespaces", append(slices.Clone(small), many(20, func(n string) share { return share{n, "alice", 90} })...), 1_000, 2},
		{"many users in a namespace", append(slices.Clone(small), many(20, func(n string) share { return share{"tenant", n, 90} })...), 1_000, 2},
		{"one of two in a namespace", []share{{"shop", "bob", 100}, {"shop", "alice", 5_000}, {"", "admin", 50}}, 4_000, 1},
		{"everything", append(slices.Clone(small), share{"tenant", "alice", 10}), 1_000, 0},
	} {
		given := surplus(test.shares, test.excess)
		total := int64(0)
		for _, bytes := range given {
			total += bytes
		}
		all := int64(0)
		for i, h := range test.shares {
			all += h.bytes
			if i < test.spared && given[h] > 0 {
				t.Errorf("%s: %+v gives up %d bytes", test.what, h, given[h])
			}
			if given[h] > h.bytes {
				t.Errorf("%s: %+v gives up %d bytes", test.what, h, given[h])
			}
		}
		if total != min(test.excess, all) {
			t.Errorf("%s: %v give up %d of %d bytes", test.what, slices.Collect(maps.Keys(given)), total, test.excess)
		}
	}
}
