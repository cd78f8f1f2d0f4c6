package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
)

// things is the resource that the tests write.
var things = sqlstore.Resource{Group: "test.sqube.dev", Name: "things"}

// put returns a write that puts value at key, replacing previous if that is not nil.
func put(key, value string, previous *sqlstore.Record) *sqlstore.Write {
	w := &sqlstore.Write{Operation: dialect.Create, Resource: things, Key: key, Name: key, Previous: previous, Labels: "{}", Fields: "{}", Value: []byte(value)}
	if previous != nil {
		w.Operation = dialect.Update
	}
	return w
}

func remove(previous *sqlstore.Record) *sqlstore.Write {
	return &sqlstore.Write{Operation: dialect.Delete, Resource: things, Key: previous.Key, Name: previous.Key, Previous: previous, Labels: "{}", Fields: "{}"}
}

// must commits w and returns the resulting record.
func must(t testing.TB, s *sqlstore.Store, w *sqlstore.Write) *sqlstore.Record {
	t.Helper()
	revision, err := s.Write(t.Context(), w)
	if err != nil {
		t.Fatalf("%s %s: %v", w.Operation, w.Key, err)
	}
	return made(w, revision)
}

func made(w *sqlstore.Write, revision int64) *sqlstore.Record {
	r := &sqlstore.Record{Revision: revision, Key: w.Key}
	if w.Operation != dialect.Delete {
		r.Labels, r.Fields, r.Value = w.Labels, w.Fields, w.Value
	}
	return r
}

// History is what a log must contain: the acknowledged writes, by revision. It is the model that reads are compared with.
type History struct {
	mu   sync.Mutex
	rows map[int64]*sqlstore.Write
}

// Add records that w was acknowledged with revision.
func (h *History) Add(t testing.TB, w *sqlstore.Write, revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rows == nil {
		h.rows = map[int64]*sqlstore.Write{}
	}
	if other := h.rows[revision]; other != nil {
		t.Errorf("both %[2]s and %[3]s got revision %[1]d", revision, other.Key, w.Key)
	}
	h.rows[revision] = w
}

// Revisions returns the revisions after from and up to to, in order.
func (h *History) Revisions(from, to int64) []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var revisions []int64
	for r := range h.rows {
		if r > from && r <= to {
			revisions = append(revisions, r)
		}
	}
	slices.Sort(revisions)
	return revisions
}

// State returns what was live at revision, in the order of keys.
func (h *History) State(revision int64) []string {
	live := map[string]string{}
	for _, r := range h.Revisions(0, revision) {
		if w := h.rows[r]; w.Operation == dialect.Delete {
			delete(live, w.Key)
		} else {
			live[w.Key] = show(w.Key, r, w.Value)
		}
	}
	var state []string
	for _, key := range slices.Sorted(maps.Keys(live)) {
		state = append(state, live[key])
	}
	return state
}

// Changes returns the changes after from and up to to, in order.
func (h *History) Changes(from, to int64) []string {
	var changes []string
	for _, r := range h.Revisions(from, to) {
		changes = append(changes, showChange(h.rows[r].Operation, made(h.rows[r], r), h.rows[r].Previous))
	}
	return changes
}

func show(key string, revision int64, value []byte) string {
	return fmt.Sprintf("%s@%d=%s", key, revision, value)
}

func showChange(operation dialect.Operation, r, previous *sqlstore.Record) string {
	text := string(operation) + " " + show(r.Key, r.Revision, r.Value)
	if previous != nil {
		text += " over " + show(previous.Key, previous.Revision, previous.Value)
	}
	return text
}

// ShowChanges returns changes as strings that can be compared.
func ShowChanges(changes []*sqlstore.Change) []string {
	var texts []string
	for _, c := range changes {
		texts = append(texts, showChange(c.Operation, &c.Record, c.Previous))
	}
	return texts
}

// Load describes concurrent writers on a shared set of keys.
type Load struct {
	Writers, Writes, Keys int
	// Tolerate reports whether writers may get an error other than a conflict. Writes that get one may or may not be in the log.
	Tolerate func(error) bool
}

// Run writes to s until all writers are done, and records acknowledged writes in h. Some writes deliberately replace a version
// that is no longer current. It returns the number of conflicts.
func (l Load) Run(t testing.TB, s *sqlstore.Store, h *History) (conflicts int) {
	var mu sync.Mutex
	var done sync.WaitGroup
	for n := range l.Writers {
		done.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), uint64(l.Writes)))
			stale := map[string]*sqlstore.Record{}
			for i := range l.Writes {
				err := l.one(t.Context(), s, t, h, random, stale, fmt.Sprintf(`{"writer":%d,"write":%d}`, n, i))
				switch {
				case err == nil:
				case errors.Is(err, sqlstore.ErrConflict):
					mu.Lock()
					conflicts++
					mu.Unlock()
				case l.Tolerate != nil && l.Tolerate(err):
				default:
					t.Errorf("writer %d: %v", n, err)
					return
				}
			}
		})
	}
	done.Wait()
	return conflicts
}

func (l Load) one(ctx context.Context, s *sqlstore.Store, t testing.TB, h *History, random *rand.Rand, stale map[string]*sqlstore.Record, value string) error {
	key := fmt.Sprintf("ns%d/%03d", random.IntN(3), random.IntN(l.Keys))
	current, ok := stale[key]
	if !ok || random.IntN(4) > 0 {
		var err error
		if current, _, err = s.Get(ctx, things, key); err != nil {
			return err
		}
		stale[key] = current
	}
	w := put(key, value, current)
	if current != nil && random.IntN(5) == 0 {
		w = remove(current)
	}
	revision, err := s.Write(ctx, w)
	if err == nil {
		h.Add(t, w, revision)
	}
	return err
}

// Equal compares two lists of strings and reports the first difference.
func Equal(t testing.TB, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("%s: %d entries, want %d; the first missing one is %s", what, len(got), len(want), want[i])
		case i >= len(want):
			t.Errorf("%s: %d entries, want %d; the first unexpected one is %s", what, len(got), len(want), got[i])
		case got[i] != want[i]:
			t.Errorf("%s: entry %d is\n%s, want\n%s", what, i, got[i], want[i])
		default:
			continue
		}
		return
	}
}

// Subset checks that every entry of some is in all.
func Subset(t testing.TB, what string, some, all []string) {
	t.Helper()
	for _, one := range some {
		if !slices.Contains(all, one) {
			t.Errorf("%s: missing %s", what, one)
			return
		}
	}
}
