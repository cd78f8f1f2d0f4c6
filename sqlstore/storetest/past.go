package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/test/harness"
)

// keeping are the options of a store that keeps history and removes nothing by itself.
var keeping = sqlstore.Options{History: time.Hour, CompactInterval: time.Hour}

// testPast moves versions into history while they are read, by two processes at once where that is possible, and then reads the state at
// each revision again.
func testPast(t *testing.T, open Opener) {
	connect := open(t)
	engine := OpenEngine(t, connect)
	s := Start(t, engine, keeping)
	movers := []*sqlstore.Store{s}
	if engine.Notifications() != nil {
		movers = append(movers, Start(t, OpenEngine(t, connect), keeping))
	}
	h := &History{}
	Load{Writers: 4, Writes: 50, Keys: 20}.Run(t, s, h)
	first := revision(t, s).Revision
	var work sync.WaitGroup
	for at := first; at > 1; at = max(1, at-29) {
		want := h.State(at)
		work.Go(func() {
			for range 3 {
				got, err := pastPages(t, s, sqlstore.Query{Revision: at, Limit: 7})
				if err != nil {
					t.Errorf("the state at %d: %v", at, err)
				}
				Equal(t, fmt.Sprintf("the state at %d", at), got, want)
			}
		})
	}
	work.Go(func() { Load{Writers: 4, Writes: 30, Keys: 20}.Run(t, s, h) })
	for at := int64(20); at < first; at += 23 {
		var moving sync.WaitGroup
		for _, mover := range movers {
			moving.Go(func() {
				if err := mover.Compact(t.Context(), at); err != nil {
					t.Errorf("moving versions up to %d: %v", at, err)
				}
			})
		}
		moving.Wait()
	}
	work.Wait()
	checkChanges(t, s, h, history.Query{})
	late, before := lazily(t, s), shownPast(t, s, history.Query{})
	compact(t, s, revision(t, s).Revision)
	var after []string
	for _, c := range late { // which have left the log
		after = append(after, showPast(t, c))
	}
	Equal(t, "changes read late", after, before)
	checkPast(t, s, h, 1)
	for _, q := range []history.Query{
		{}, {After: first / 2}, {Before: first}, {After: 10, Before: 11}, {Name: "ns1/003"}, {Name: "ns1/003", Resource: &things},
		{Resource: &history.Resource{Name: "others"}}, {Before: 1}, {After: 1 << 40},
	} {
		checkChanges(t, s, h, q)
	}
	checkLive(t, s, h)
}

// checkChanges reads changes in both orders.
func checkChanges(t *testing.T, s *sqlstore.Store, h *History, q history.Query) {
	t.Helper()
	var want []string
	for _, id := range h.Revisions(q.After, revision(t, s).Revision) {
		w := h.rows[id]
		if q.Before != 0 && id >= q.Before || q.Name != "" && q.Name != w.Name || q.Resource != nil && q.Resource.Name != things.Name {
			continue
		}
		text := fmt.Sprintf("%s %s", w.Operation, show(w.Key, id, w.Value))
		if w.Previous != nil {
			text += fmt.Sprintf(" over %s", w.Previous.Value)
		}
		want = append(want, text)
	}
	for _, q.NewestFirst = range []bool{false, true} {
		for _, q.Lazy = range []bool{false, true} {
			Equal(t, fmt.Sprintf("the changes of %+v", q), shownPast(t, s, q), want)
		}
		slices.Reverse(want)
	}
}

// testPastGrows reads the changes of an object while its versions leave the log one by one, into a block that was read before.
func testPastGrows(t *testing.T, open Opener) {
	s := Start(t, OpenEngine(t, open(t)), keeping)
	for _, newestFirst := range []bool{false, true} {
		q := history.Query{Name: fmt.Sprint(newestFirst), NewestFirst: newestFirst}
		last := must(t, s, put(q.Name, "0", nil))
		first := last.Revision
		want := []string{"create " + show(q.Name, first, []byte("0"))}
		for i := range 60 {
			last = must(t, s, put(q.Name, fmt.Sprint(i+1), last))
			want = append(want, fmt.Sprintf("update %s over %d", show(q.Name, last.Revision, last.Value), i))
		}
		moved := first
		move := func() {
			moved = min(moved+2, last.Revision)
			compact(t, s, moved)
		}
		move()
		var got []string
		harness.Must(t, s.Changes(t.Context(), q, func(c *history.Change) error {
			got = append(got, showPast(t, c))
			move()
			return nil
		}))
		if newestFirst {
			slices.Reverse(want)
		}
		Equal(t, fmt.Sprintf("the changes of %+v", q), got, want)
	}
}

func shownPast(t *testing.T, s *sqlstore.Store, q history.Query) (all []string) {
	t.Helper()
	err := s.Changes(t.Context(), q, func(c *history.Change) error {
		all = append(all, showPast(t, c))
		return nil
	})
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	return all
}

func showPast(t *testing.T, c *history.Change) string {
	t.Helper()
	harness.Must(t, c.Load(t.Context()))
	text := fmt.Sprintf("%s %s", c.Operation, show(c.Key, c.ID, c.Value))
	if c.Previous != nil {
		text += fmt.Sprintf(" over %s", c.Previous)
	}
	return text
}

// lazily returns all changes without what Load reads.
func lazily(t *testing.T, s *sqlstore.Store) (all []*history.Change) {
	t.Helper()
	harness.Must(t, s.Changes(t.Context(), history.Query{Lazy: true}, func(c *history.Change) error {
		if c.Value != nil || c.Previous != nil {
			t.Errorf("revision %d has its values", c.ID)
		}
		all = append(all, c)
		return nil
	}))
	return all
}

// checkLive reads what exists: all, and what may have owners, which is also what can't be read.
func checkLive(t *testing.T, s *sqlstore.Store, h *History) {
	t.Helper()
	live := func(owned bool) (all []string) {
		harness.Must(t, s.Live(t.Context(), history.Query{Resource: &things}, owned, func(c *history.Change) error {
			harness.Must(t, c.Load(t.Context()))
			all = append(all, show(c.Key, c.ID, c.Value))
			return nil
		}))
		slices.Sort(all)
		return all
	}
	want := h.State(revision(t, s).Revision)
	slices.Sort(want)
	Equal(t, "what exists", live(false), want)
	want = nil
	for _, w := range []*sqlstore.Write{put("owned", `{"metadata":{"ownerReferences":[]}}`, nil), put("sealed", "k8s:enc:x", nil), put("unowned", "{}", nil)} {
		made := must(t, s, w)
		want = append(want, show(made.Key, made.Revision, made.Value))
	}
	Equal(t, "what may have owners", live(true), want[:2])
}

func compact(t *testing.T, s *sqlstore.Store, upTo int64) {
	t.Helper()
	harness.Must(t, s.Compact(t.Context(), upTo))
}

// checkPast reads the states at all revisions after from, as one object and as pages.
func checkPast(t *testing.T, s *sqlstore.Store, h *History, from int64) {
	t.Helper()
	for _, at := range h.Revisions(from, revision(t, s).Revision) {
		state := h.State(at)
		got, err := pastPages(t, s, sqlstore.Query{Revision: at})
		if err != nil {
			t.Fatalf("the state at %d: %v", at, err)
		}
		Equal(t, fmt.Sprintf("the state at %d", at), got, state)
		prefix := under("ns1/", state)
		n, err := s.Count(t.Context(), sqlstore.Query{Resource: things, Prefix: "ns1/", Revision: at})
		if err != nil || n != int64(len(prefix)) {
			t.Errorf("the state at %d has %d objects in ns1, %v; want %d", at, n, err, len(prefix))
		}
		key := h.rows[at].Key
		got, err = pastPages(t, s, sqlstore.Query{Revision: at, Exactly: &key})
		if want := under(key+"@", state); err != nil || len(got) != len(want) || len(want) == 1 && got[0] != want[0] {
			t.Errorf("%s at %d is %q, %v; want %q", key, at, got, err, want)
		}
	}
}

// pastPages reads all pages of q.
func pastPages(t *testing.T, s *sqlstore.Store, q sqlstore.Query) (state []string, err error) {
	q.Resource = things
	for {
		page, err := s.Page(t.Context(), q)
		if err != nil {
			return state, err
		}
		for _, r := range page.Records {
			state = append(state, show(r.Key, r.Revision, r.Value))
			q.After = r.Key
		}
		if !page.More {
			return state, nil
		}
	}
}

// testPastOfOthers has another process, which keeps no history, remove versions. What is kept begins after those.
func testPastOfOthers(t *testing.T, open Opener) {
	connect := open(t)
	engine := OpenEngine(t, connect)
	s := Start(t, engine, keeping)
	h := &History{}
	Load{Writers: 2, Writes: 40, Keys: 8}.Run(t, s, h)
	compact(t, s, 30)
	checkPast(t, s, h, 1)
	for n := 1; n > 0; {
		var err error
		if n, err = engine.Compact(t.Context(), 50, 1000, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pastPages(t, s, sqlstore.Query{Revision: 20}); !errors.Is(err, sqlstore.ErrCompacted) {
		t.Errorf("the state at 20 after a removal up to 50: %v", err)
	}
	Load{Writers: 2, Writes: 40, Keys: 8}.Run(t, s, h)
	compact(t, s, revision(t, s).Revision)
	for _, at := range []int64{20, 49} {
		if _, err := pastPages(t, s, sqlstore.Query{Revision: at}); !errors.Is(err, sqlstore.ErrCompacted) {
			t.Errorf("the state at %d after a removal up to 50: %v", at, err)
		}
	}
	checkPast(t, s, h, 50)
}

// testForget has history give way because of its size, and then removes what is too old. What still has its values is what was.
func testForget(t *testing.T, open Opener) {
	var mu sync.Mutex
	now := time.Now()
	s := Open(t, open, sqlstore.Options{History: time.Hour, HistoryBytes: 24 << 10, Retention: 30 * time.Millisecond, CompactInterval: 10 * time.Millisecond,
		Now: func() time.Time { mu.Lock(); defer mu.Unlock(); return now }})
	h := &History{}
	Load{Writers: 4, Writes: 400, Keys: 40}.Run(t, s, h)
	var stats sqlstore.HistoryStats
	Eventually(t, "the history is as small as it must be", func() bool {
		stats = s.Stats().History
		return stats.ValuesFrom > 1 && stats.Bytes <= 24<<10 && stats.Blocks > stats.Bare
	})
	if stats.From != 0 || stats.ValuesAt == 0 || len(stats.GaveWay) == 0 {
		t.Errorf("history begins later, since it had no room: %+v", stats)
	}
	last := revision(t, s).Revision
	Eventually(t, "the versions are packed", func() bool { return s.Stats().Compacted >= last })
	stats = s.Stats().History
	checkPast(t, s, h, stats.ValuesFrom)
	if _, err := pastPages(t, s, sqlstore.Query{Revision: 2}); !errors.Is(err, sqlstore.ErrCompacted) {
		t.Errorf("the state at revision 2: %v", err)
	}
	mu.Lock()
	now = now.Add(2 * time.Hour)
	mu.Unlock()
	previous := must(t, s, put("old", "{}", nil))
	must(t, s, put("old", "{}", previous))
	Eventually(t, "what is older is gone", func() bool {
		later := s.Stats().History
		return later.From > stats.ValuesFrom && later.Blocks <= 2
	})
	from := s.Stats().History.From
	if _, err := pastPages(t, s, sqlstore.Query{Revision: from - 1}); !errors.Is(err, sqlstore.ErrCompacted) {
		t.Errorf("the state before revision %d: %v", from, err)
	}
}

// testPurge purges the versions of one object, in history and in the log. The others stay, and so do later ones.
func testPurge(t *testing.T, open Opener) {
	s := Open(t, open, keeping)
	h := &History{}
	write := func(w *sqlstore.Write) *sqlstore.Record {
		r := must(t, s, w)
		h.Add(t, w, r.Revision)
		return r
	}
	secret := write(put("ns1/leaked", `{"password":"one"}`, nil))
	other := write(put("ns1/other", `{"a":1}`, nil))
	secret = write(put("ns1/leaked", `{"password":"two"}`, secret))
	other = write(put("ns1/other", `{"a":2}`, other))
	compact(t, s, other.Revision)
	secret = write(put("ns1/leaked", `{"password":"three"}`, secret))
	if _, err := s.Purge(t.Context(), things, "ns1/none", sqlstore.Author{}); !errors.Is(err, sqlstore.ErrNoHistory) {
		t.Errorf("purging what never was: %v", err)
	}
	_, err := s.Purge(t.Context(), things, "ns1/leaked", sqlstore.Author{User: "jane", FieldManager: "kubectl"})
	harness.Must(t, err)
	secret = write(put("ns1/leaked", `{"password":"four"}`, secret))
	write(remove(secret))
	compact(t, s, revision(t, s).Revision)
	var got []string
	err = s.Changes(t.Context(), history.Query{Name: "ns1/leaked"}, func(c *history.Change) error {
		err := c.Load(t.Context())
		got = append(got, fmt.Sprintf("%s by %q %s over %s", c.Operation, c.User, c.Value, c.Previous))
		return err
	})
	want := []string{`purge by "jane"  over `, `update by "" {"password":"three"} over `, `update by "" {"password":"four"} over {"password":"three"}`, `delete by ""  over {"password":"four"}`}
	if err != nil {
		t.Error(err)
	}
	for i, text := range got { // the author of the others is the server
		got[i] = strings.ReplaceAll(text, "system:apiserver", "")
	}
	Equal(t, "the changes", got, want)
	for _, at := range h.Revisions(1, revision(t, s).Revision) {
		state, err := pastPages(t, s, sqlstore.Query{Revision: at})
		harness.Must(t, err)
		Equal(t, fmt.Sprintf("the state at %d", at), state, slices.DeleteFunc(h.State(at), func(text string) bool {
			return strings.Contains(text, "leaked") && at < secret.Revision-1
		}))
	}
}

// testPurgeWhileMoving purges an object while its versions are being moved into history. None comes back.
func testPurgeWhileMoving(t *testing.T, open Opener) {
	engine := OpenEngine(t, open(t))
	s := Start(t, engine, keeping)
	r := must(t, s, put("leaked", `{"password":"one"}`, nil))
	r = must(t, s, put("leaked", `{"password":"two"}`, r))
	compact(t, s, r.Revision)
	r = must(t, s, put("leaked", `{"password":"three"}`, r))
	purged := make(chan error, 1)
	_, err := engine.Compact(t.Context(), r.Revision, 100, func(rows []*dialect.Replaced, last []*dialect.Block) ([]*dialect.Block, error) {
		go func() {
			_, err := s.Purge(t.Context(), things, "leaked", sqlstore.Author{})
			purged <- err
		}()
		select {
		case err := <-purged: // too early
			purged <- err
		case <-time.After(200 * time.Millisecond):
		}
		return history.Pack(nil)(rows, last)
	})
	harness.Must(t, errors.Join(err, <-purged))
	var got []string
	err = s.Changes(t.Context(), history.Query{Name: "leaked"}, func(c *history.Change) error {
		err := c.Load(t.Context())
		got = append(got, fmt.Sprintf("%s %s over %s", c.Operation, c.Value, c.Previous))
		return err
	})
	if err != nil {
		t.Error(err)
	}
	Equal(t, "the changes", got, []string{"purge  over ", `update {"password":"three"} over `})
}
