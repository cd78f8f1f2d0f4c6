package sqlstore

import (
	"testing"
	"testing/synctest"
)

// TestGivingWay has many subscriptions get a change alone, and then many changes at once. The hub gives way to other goroutines while it tells them
// of the first one, but not for each of the others: requests that keep the processors busy would delay the last ones by all these turns.
func TestGivingWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const subscriptions, many = 4 * toldAtOnce, 1000
		m, f := newFollowers(t, 100*many, subscriptions)
		h := newHub(0, newCache(0, 0), func(Resource) {}, m)
		defer h.close()
		for _, f := range f {
			f.store.hub = h
			f.Subscribe(Resource{}, "")
		}
		given := 0
		h.mu.Lock()
		h.giveWay = func() { given++ }
		h.mu.Unlock()
		offer := func(from, to int64) {
			var changes []*Change
			for revision := from + 1; revision <= to; revision++ {
				changes = append(changes, &Change{Record: Record{Revision: revision}})
			}
			given = 0
			h.offer(from, to, changes)
			synctest.Wait()
		}
		offer(0, 1)
		if want := subscriptions/toldAtOnce - 1; given < want {
			t.Errorf("the hub gives way %d times for one change, want %d", given, want)
		}
		offer(1, 1+many)
		if given > many/10 {
			t.Errorf("the hub gives way %d times for %d changes that come at once", given, many)
		}
	})
}
