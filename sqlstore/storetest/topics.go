package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/test/harness"
)

// attributes are the labels and fields in an object's row, none if they are withheld.
type attributes struct {
	labels, fields map[string]string
	withheld       bool
	value          string // of the object, for tests that read it
}

// randomAttributes returns sets, many of which share a value.
func randomAttributes(random *rand.Rand) *attributes {
	set := func() map[string]string {
		set := map[string]string{}
		for _, key := range someKeys {
			value := []string{"", "a", "b", "1"}[random.IntN(4)]
			if random.IntN(3) == 0 {
				value = someValues[random.IntN(len(someValues))]
			}
			if random.IntN(4) > 0 && utf8.ValidString(value) {
				set[key] = value
			}
		}
		return set
	}
	return &attributes{labels: set(), fields: set(), withheld: random.IntN(20) == 0}
}

func (o *attributes) encode(w *sqlstore.Write) {
	w.Labels, w.Fields = sqlstore.EncodeSet(o.labels), sqlstore.EncodeSet(o.fields)
	if o.withheld {
		w.Labels, w.Fields = sqlstore.Withheld, sqlstore.Withheld
	}
}

// randomWrites changes a few random objects.
type randomWrites struct {
	random  *rand.Rand
	records map[string]*sqlstore.Record
	objects map[string]*attributes
}

// randomWrite is a change: the object's attributes before and after it, nil if it did not exist.
type randomWrite struct {
	revision      int64
	key           string
	before, after *attributes
}

func newRandomWrites(random *rand.Rand) *randomWrites {
	return &randomWrites{random, map[string]*sqlstore.Record{}, map[string]*attributes{}}
}

// next creates, changes or deletes an object.
func (r *randomWrites) next(t *testing.T, s *sqlstore.Store, i int) randomWrite {
	key := fmt.Sprintf("n%d/%d", 1+r.random.IntN(2), r.random.IntN(10))
	w := put(key, fmt.Sprintf(`{"n":%d}`, i), r.records[key])
	before, after := r.objects[key], randomAttributes(r.random)
	switch {
	case before != nil && r.random.IntN(4) == 0:
		w, after = remove(r.records[key]), nil
	case before != nil && r.random.IntN(2) == 0:
		after = before
	}
	if after != nil {
		after.encode(w)
	}
	record := must(t, s, w)
	r.records[key], r.objects[key] = record, after
	if w.Operation == dialect.Delete {
		r.records[key] = nil
	}
	return randomWrite{record.Revision, key, before, after}
}

// concerns reports whether the choice selects the object before or after the change.
func (s choice) concerns(w randomWrite) bool {
	return s.selects(w.key, w.before) || s.selects(w.key, w.after)
}

// choice is what a client selects: the objects under a prefix, or at a key, that match.
type choice struct {
	prefix string
	labels labels.Selector
	fields fields.Selector
}

func randomChoice(t *testing.T, random *rand.Rand) choice {
	for {
		s := choice{
			prefix: []string{"", "", "n1/", "n2/", "n1/3"}[random.IntN(5)],
			labels: randomLabelSelector(t, random), fields: randomFieldSelector(random),
		}
		if utf8.ValidString(s.String()) {
			return s
		}
	}
}

func (s choice) String() string {
	return fmt.Sprintf("%q, labels %q, fields %q", s.prefix, s.labels, s.fields)
}

func (s choice) terms() []sqlstore.Term {
	return append(sqlstore.LabelTerms(s.labels), sqlstore.FieldTerms(s.fields)...)
}

// selects reports whether the choice includes, or may include, the object at key: withheld attributes do not exclude it.
func (s choice) selects(key string, o *attributes) bool {
	if o == nil || key != s.prefix && !(strings.HasPrefix(key, s.prefix) && (s.prefix == "" || strings.HasSuffix(s.prefix, "/"))) {
		return false
	}
	if o.withheld {
		return true
	}
	known := fields.Set{}
	for _, r := range s.fields.Requirements() {
		if value, ok := o.fields[r.Field]; ok {
			known[r.Field] = value
		}
	}
	selector, err := s.fields.Transform(func(field, value string) (string, string, error) {
		if !known.Has(field) {
			return "", "", nil // leaves it out
		}
		return field, value, nil
	})
	return err == nil && selector.Matches(known) && s.labels.Matches(labels.Set(o.labels))
}

// testTopics changes objects that many watchers watch, each with a different selection. Each watcher receives only the changes
// that may concern it, and still has the position of the log.
func testTopics(t *testing.T, open Opener) {
	s := Open(t, open, sqlstore.Options{})
	random := rand.New(rand.NewPCG(11, 12))
	type watcher struct {
		choice
		follower *sqlstore.Follower
		sub      *sqlstore.Subscription
		want     []int64
	}
	watch := func(choice choice) *watcher {
		f := s.Follow(t.Context())
		return &watcher{choice: choice, follower: f, sub: f.Subscribe(things, choice.prefix, choice.terms()...)}
	}
	var watchers []*watcher
	for range 200 {
		watchers = append(watchers, watch(randomChoice(t, random)))
	}
	writes := newRandomWrites(random)
	audience := map[int64]int{}
	for i := range 400 {
		write := writes.next(t, s, i)
		for _, w := range watchers {
			if w.concerns(write) {
				w.want = append(w.want, write.revision)
				audience[write.revision]++
			}
		}
		if i%10 == 0 { // some come and go
			awaitTold(t, watchers[0].sub, write.revision)
			watchers[0].follower.Close()
			watchers = append(watchers[1:], watch(randomChoice(t, random)))
		}
	}
	at := revision(t, s).Revision
	awaitTold(t, watchers[0].sub, at)
	received := 0
	for _, w := range watchers {
		changes, err := w.sub.Drain()
		harness.Must(t, err)
		var got []int64
		for _, c := range changes {
			got = append(got, c.Record.Revision)
			if c.Watchers != audience[c.Record.Revision] {
				t.Errorf("the change of %s at %d has %d watchers, want %d", c.Record.Key, c.Record.Revision, c.Watchers, audience[c.Record.Revision])
			}
			w.follower.Done(c)
		}
		if !slices.Equal(got, w.want) {
			t.Errorf("the watcher of %s received %v, want %v", w.choice, got, w.want)
		}
		if position, current := w.sub.Progress(); position != at || !current {
			t.Errorf("the watcher of %s is at %d, %t; the log at %d", w.choice, position, current, at)
		}
		received += len(got)
		w.follower.Close()
	}
	if stats := s.Stats(); stats.Watches != 0 || received == 0 || received > 400*len(watchers)/2 {
		t.Errorf("%d changes were received, and %d bytes are held at the end", received, stats.Watches)
	}
}
