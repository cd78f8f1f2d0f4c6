package storetest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sqube/sqube/sqlstore"
)

// testChoices lists and counts what random selectors select, now and at older revisions, in pages of any size, while objects are
// created, changed and deleted. It compares the results with a model that looks at every object.
func testChoices(t *testing.T, open Opener) {
	cachedAndNot(func(t *testing.T, s *sqlstore.Store) { proveChoices(t, s, nil) })(t, open)
	// The rows fit, but not all of their indexes; or only without their values.
	for _, bytes := range []int64{400_000, 250_000} {
		t.Run(fmt.Sprintf("with a cache of %d bytes", bytes), func(t *testing.T) {
			proveChoices(t, Open(t, open, sqlstore.Options{CacheBytes: bytes}), nil)
		})
	}
}

// world has the objects of a collection at a revision.
type world struct {
	revision int64
	objects  map[string]*attributes
}

// proveChoices returns what there is in the end. If begin is not nil, it begins a transaction that reads, and makes most changes.
func proveChoices(t *testing.T, s *sqlstore.Store, begin func() context.Context) world {
	ctx := t.Context()
	random := rand.New(rand.NewPCG(13, 14))
	records, now := map[string]*sqlstore.Record{}, world{objects: map[string]*attributes{}}
	written := 0
	value := func() string {
		written++
		return fmt.Sprintf(`{"n":"%0*d"}`, 300+random.IntN(300), written)
	}
	change := func() {
		key := fmt.Sprintf("n%d/%d", 1+random.IntN(2), random.IntN(150))
		after := randomAttributes(random)
		if records[key] != nil && random.IntN(2) == 0 {
			same := *now.objects[key]
			after = &same
		}
		after.value = value()
		w := put(key, after.value, records[key])
		if records[key] != nil && random.IntN(3) == 0 {
			w, after = remove(records[key]), nil
		} else {
			after.encode(w)
		}
		revision, err := s.Write(ctx, w)
		if err != nil {
			t.Fatalf("%s %s: %v", w.Operation, key, err)
		}
		records[key], now.objects[key] = made(w, revision), after
		if now.revision = records[key].Revision; after == nil {
			delete(records, key)
			delete(now.objects, key)
		}
	}
	now.revision = fill(t, s, random, value, records, now.objects)
	if begin != nil {
		ctx = begin()
	}
	var past []world
	chosen := 0
	for round := range 80 {
		at, q := now, sqlstore.Query{Resource: things}
		if round%10 == 0 {
			past = append(past, world{now.revision, maps.Clone(now.objects)})
		}
		if random.IntN(3) == 0 && begin == nil {
			at = past[random.IntN(len(past))]
			q.Revision = at.revision
		}
		choice := randomChoice(t, random)
		q.Terms, q.Prefix = choice.terms(), choice.prefix
		if choice.prefix != "" && !strings.HasSuffix(choice.prefix, "/") {
			q.Prefix, q.Exactly = "", &choice.prefix
		}
		q.From, q.After = randomStart(random)
		var want []string
		for _, key := range slices.Sorted(maps.Keys(at.objects)) {
			if choice.selects(key, at.objects[key]) && key >= q.From && (q.After == "" || key > q.After) {
				want = append(want, key+"="+at.objects[key].value)
			}
		}
		name := fmt.Sprintf("%s from %q after %q at %d", choice, q.From, q.After, q.Revision)
		limit := []int{0, 1, 7, 100}[random.IntN(4)]
		if len(want) > 30 {
			limit = []int{0, 10, 70, 100}[random.IntN(4)]
		}
		count := q
		count.Limit = limit
		n, err := s.Count(ctx, count)
		if expected := int64(len(want)); err != nil || n != expected && (limit == 0 || n != min(expected, int64(limit))) {
			t.Errorf("%s: the count is %d, %v; want %d, and at most %d", name, n, err, len(want), limit)
		}
		var got []string
		for more := true; more; {
			q.Limit = limit
			page, err := s.Page(ctx, q)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, r := range page.Records {
				got = append(got, fmt.Sprintf("%s=%s", r.Key, r.Value))
				q.After = r.Key
			}
			more = page.More
			if q.Revision == 0 {
				q.Revision = page.Revision
			}
			if random.IntN(4) == 0 && (begin == nil || !more) { // pages of a transaction have what it writes meanwhile
				if at.revision == now.revision {
					at = world{now.revision, maps.Clone(now.objects)}
				}
				change()
			}
		}
		Equal(t, name, got, want)
		chosen += len(want)
	}
	if chosen == 0 {
		t.Error("nothing was ever selected")
	}
	return now
}

// fill creates objects, and returns the last of their revisions.
func fill(t *testing.T, s *sqlstore.Store, random *rand.Rand, value func() string, records map[string]*sqlstore.Record, objects map[string]*attributes) (last int64) {
	var mu sync.Mutex
	var writers sync.WaitGroup
	for i := range 250 {
		o := randomAttributes(random)
		o.value = value()
		w := put(fmt.Sprintf("n%d/%d", 1+i%2, i/2), o.value, nil)
		o.encode(w)
		writers.Go(func() {
			revision, err := s.Write(t.Context(), w)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			records[w.Key], objects[w.Key], last = made(w, revision), o, max(last, revision)
		})
	}
	writers.Wait()
	return last
}

// randomStart returns where a page begins: at the first key, or at or after another one.
func randomStart(random *rand.Rand) (from, after string) {
	switch random.IntN(4) {
	case 0:
		return "", fmt.Sprintf("n%d/%d", 1+random.IntN(2), random.IntN(150))
	case 1:
		return fmt.Sprintf("n%d/%d", 1+random.IntN(2), random.IntN(150)), ""
	}
	return "", ""
}
