package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// testSnapshots pages through the state at one revision while writers change it.
func testSnapshots(t *testing.T, s *sqlstore.Store) {
	h := &History{}
	Load{Writers: 8, Writes: 40, Keys: 60}.Run(t, s, h)

	type walked struct {
		snapshot
		prefix string
	}
	var walks []walked
	ended := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		random := rand.New(rand.NewPCG(1, 2))
		for running := true; running && len(walks) < 100; {
			select {
			case <-ended:
				running = false
			case <-time.After(time.Millisecond):
			}
			w := walked{prefix: []string{"", "ns1/"}[random.IntN(2)]}
			q := sqlstore.Query{Prefix: w.prefix, Limit: 1 + random.IntN(20)}
			for {
				page, at, err := list(t.Context(), s, q)
				if err != nil {
					t.Error(err)
					return
				}
				if q.Revision == 0 {
					q.Revision = at.Revision
				}
				w.state = append(w.state, page...)
				if len(page) < q.Limit {
					break
				}
				q.After, _, _ = strings.Cut(page[len(page)-1], "@")
			}
			// Many walks have the same revision, if they read memory.
			if w.revision = q.Revision; len(walks) == 0 || w.revision != walks[len(walks)-1].revision {
				walks = append(walks, w)
			}
		}
	})
	Load{Writers: 8, Writes: 100, Keys: 60}.Run(t, s, h)
	close(ended)
	reader.Wait()

	for _, w := range walks {
		Equal(t, fmt.Sprintf("the pages of %q at %d", w.prefix, w.revision), w.state, under(w.prefix, h.State(w.revision)))
	}
	if len(walks) < 3 {
		t.Errorf("only %d walks", len(walks))
	}
}

func under(prefix string, state []string) (some []string) {
	for _, text := range state {
		if strings.HasPrefix(text, prefix) {
			some = append(some, text)
		}
	}
	return some
}

// testOldRevisions reads the state at random revisions in every way in which a Query can select part of it.
func testOldRevisions(t *testing.T, s *sqlstore.Store) {
	h := &History{}
	first := revision(t, s).Revision
	Load{Writers: 8, Writes: 80, Keys: 30}.Run(t, s, h)
	last := revision(t, s).Revision

	random := rand.New(rand.NewPCG(3, 4))
	for range 80 {
		at := first + random.Int64N(last-first+1)
		state := h.State(at)
		got, _ := mustList(t, s, at)
		Equal(t, fmt.Sprintf("the state at %d", at), got, state)

		key := fmt.Sprintf("ns%d/%03d", random.IntN(4), random.IntN(35))
		limit := 1 + random.IntN(10)
		for _, part := range []struct {
			query  sqlstore.Query
			filter func(k string) bool
		}{
			{sqlstore.Query{Exactly: &key}, func(k string) bool { return k == key }},
			{sqlstore.Query{After: key}, func(k string) bool { return k > key }},
			{sqlstore.Query{From: key}, func(k string) bool { return k >= key }},
			{sqlstore.Query{Prefix: "ns1/", From: key}, func(k string) bool { return k >= key && strings.HasPrefix(k, "ns1/") }},
			{sqlstore.Query{Prefix: "ns1/", After: key, Limit: limit}, func(k string) bool { return k > key && strings.HasPrefix(k, "ns1/") }},
		} {
			var want []string
			for _, text := range state {
				if k, _, _ := strings.Cut(text, "@"); part.filter(k) && (part.query.Limit == 0 || len(want) < part.query.Limit) {
					want = append(want, text)
				}
			}
			part.query.Revision, part.query.Resource = at, things
			got, _, err := list(t.Context(), s, part.query)
			harness.Must(t, err)
			Equal(t, fmt.Sprintf("%+v", part.query), got, want)
			if n, err := s.Count(t.Context(), part.query); err != nil || n != int64(len(want)) {
				t.Errorf("%+v has %d records, %v; want %d", part.query, n, err, len(want))
			}
		}
	}
	if _, _, err := list(t.Context(), s, sqlstore.Query{Revision: last + 1}); !errors.Is(err, sqlstore.ErrFuture) {
		t.Errorf("a list at revision %d of %d returned %v", last+1, last, err)
	}
}

// testEmptyLog reads an empty log: reads still return its position.
func testEmptyLog(t *testing.T, s *sqlstore.Store) {
	state, at := mustList(t, s, 0)
	if len(state) != 0 || at.Revision < 1 {
		t.Errorf("an empty log has %v at %d", state, at.Revision)
	}
	if r, got, err := s.Get(t.Context(), things, "nothing"); r != nil || err != nil || got != at {
		t.Errorf("got %v, %v, %v", r, got, err)
	}
	if _, _, err := list(t.Context(), s, sqlstore.Query{Revision: at.Revision + 1}); !errors.Is(err, sqlstore.ErrFuture) {
		t.Errorf("an empty list at a future revision returned %v", err)
	}
	other := sqlstore.Resource{Name: "others"}
	if _, err := s.Write(t.Context(), &sqlstore.Write{Operation: "create", Resource: other, Key: "a", Labels: "{}", Fields: "{}", Value: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	if _, after := mustList(t, s, 0); after.Revision != at.Revision+1 {
		t.Errorf("an empty list has revision %d, want %d", after.Revision, at.Revision+1)
	}
}
