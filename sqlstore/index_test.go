package sqlstore

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sqube/sqube/dialect"
)

var indexed = Resource{Name: "pods"}

// row returns the i-th pod: of 50 apps, on 200 nodes, in 10 namespaces.
func row(revision int64, i int) *Record {
	return &Record{
		Revision: revision, Key: fmt.Sprintf("ns-%d/pod-%05d", i%10, i), Value: make([]byte, 1000),
		Labels: EncodeSet(map[string]string{"app": fmt.Sprint(i % 50), "all": "yes", "name": fmt.Sprint(i)}),
		Fields: EncodeSet(map[string]string{"spec.nodeName": fmt.Sprint(i % 200)}),
	}
}

// newPods returns a cache with n pods.
func newPods(t *testing.T, budget int64, n int) *cache {
	t.Helper()
	c := newCache(budget, 1)
	_, _, f, _ := c.lookup(indexed, 0)
	c.fillPods(indexed, f, 1, n)
	if c.collections[indexed].rows == nil {
		t.Fatal("the pods do not fit")
	}
	return c
}

// fillPods reads n pods at a revision into the cache.
func (c *cache) fillPods(resource Resource, f *filling, revision int64, n int) {
	c.fill(resource, f, func(add func(*Record) error) (int64, error) {
		for i := range n {
			if err := add(row(revision, i)); err != nil {
				return 0, err
			}
		}
		return revision, nil
	})
}

// settle waits until no collection is being made smaller.
func (c *cache) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.shrinking {
		c.shrunk.Wait()
	}
}

func (c *cache) newest() *snapshot {
	c.settle()
	snap, _, _, _ := c.lookup(indexed, 0)
	return snap
}

func selecting(prefix, byLabel, byField string) Query {
	return Query{Resource: indexed, Prefix: prefix, Terms: append(LabelTerms(parsedLabels(byLabel)), FieldTerms(fields.ParseSelectorOrDie(byField))...)}
}

// sound checks that the cache counts correctly what it holds, and holds no more than it may.
func (c *cache) sound(t *testing.T) {
	t.Helper()
	c.settle()
	c.mu.Lock()
	defer c.mu.Unlock()
	var bytes int64
	for _, col := range c.collections {
		if col.rows == nil {
			continue
		}
		var whole, packed int64
		col.rows.Scan(func(r *Record) bool {
			bytes += r.memory()
			whole += int64(len(r.Value))
			packed += r.packed.memory()
			return true
		})
		if whole != col.whole || packed != col.packed {
			t.Errorf("a collection has %d bytes of values and %d of packed ones, but counts %d and %d", whole, packed, col.whole, col.packed)
		}
		for _, x := range col.indexes {
			x.keys.Scan(func(k valueKey) bool { bytes += k.memory(); return true })
		}
	}
	if bytes != c.bytes || c.size() > c.budget {
		t.Errorf("the cache holds %d bytes, counts %d, and may hold %d", bytes, c.bytes, c.budget)
	}
}

// TestSelectionLooksAtWhatMatches selects a few of many pods, and checks that it looks at no others.
func TestSelectionLooksAtWhatMatches(t *testing.T) {
	c := newPods(t, 64<<20, 10_000)
	for _, s := range []struct {
		prefix, labels, fields string
		looks                  int // how many it looks at; -1 for all under the prefix
	}{
		{"", "app=7", "", 200},
		{"", "", "spec.nodeName=7", 50},
		{"", "app in (7,8)", "", 400},
		{"", "app=7,all=yes", "", 200},
		{"", "all=yes,app=7", "", 200}, // once the first index turns out not to help
		{"", "app=7,name!=7", "", 200},
		{"ns-7/", "app=7", "", 200},
		{"ns-8/", "app=7", "", 0},
		{"", "app=none", "", 0},
		{"", "all=yes", "", -1},
		{"", "app!=7", "", -1},
		{"", "app", "", -1},
	} {
		q := selecting(s.prefix, s.labels, s.fields)
		c.narrow(c.newest(), q)
		selected, looks := c.narrow(c.newest(), q), -1
		if selected != nil {
			looks = selected.count(q.start(), q.end(), 1<<30)
		}
		if looks != s.looks {
			t.Errorf("%q, %q under %q looks at %d pods, want %d", s.labels, s.fields, s.prefix, looks, s.looks)
		}
	}
	c.sound(t)
}

// TestIndexesAreBounded selects by more and more labels: a few have indexes, and labels in use keep theirs.
func TestIndexesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPods(t, 64<<20, 1000)
		by := func(i int) bool {
			q := selecting("", labels.Set{fmt.Sprintf("label-%d", i): "a"}.String(), "")
			return c.narrow(c.newest(), q) != nil
		}
		for i := range 3 * maxIndexes {
			if has := by(i); has != (i < maxIndexes) {
				t.Errorf("a selection by label %d has an index: %t", i, has)
			}
		}
		if !c.hasIndex("", "spec.nodeName=1") {
			t.Error("there is no index by a field")
		}
		time.Sleep(idleIndex / 2)
		for i := 1; i < maxIndexes; i++ {
			by(i)
		}
		time.Sleep(idleIndex / 2)
		got := []bool{by(100), by(101), by(0), by(1)}
		if want := []bool{true, false, false, true}; !slices.Equal(got, want) {
			t.Errorf("indexes exist for a new label, another one, the unused one and a used one: %v, want %v", got, want)
		}
		c.sound(t)
	})
}

func (c *cache) hasIndex(byLabel, byField string) bool {
	return c.narrow(c.newest(), selecting("", byLabel, byField)) != nil
}

// TestIndexesGiveWayToRows fills a cache to its limit: indexes are dropped first.
func TestIndexesGiveWayToRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 1000
		rows := newPods(t, 64<<20, pods).bytes
		c := newPods(t, rows+rows/2, pods)
		if !c.hasIndex("app=7", "") {
			t.Fatal("there is room for an index, but none was made")
		}
		c.sound(t)
		revision := int64(1)
		for i := pods; c.bytes+2000 < c.room(); i++ {
			revision++
			c.apply(revision, []*Change{{Resource: indexed, Operation: dialect.Create, Record: *row(revision, i)}})
		}
		c.sound(t)
		for i := range 20 {
			revision++
			c.apply(revision, []*Change{{Resource: indexed, Operation: dialect.Create, Record: *row(revision, 5000+i)}})
		}
		c.sound(t)
		if c.collections[indexed].rows == nil || c.hasIndex("app=7", "") || len(c.collections[indexed].indexes) != 0 {
			t.Errorf("there are %d indexes, and the rows in memory: %t", len(c.collections[indexed].indexes), c.collections[indexed].rows != nil)
		}
		tight := newPods(t, rows+1000, pods)
		tight.hasIndex("app=7", "") // makes it once
		if tight.sound(t); tight.hasIndex("app=7", "") || tight.collections[indexed].rows == nil {
			t.Error("an index that does not fit is made repeatedly, or the rows were dropped")
		}
	})
}

// TestIndexMadeAmongWrites changes rows while an index is made: earlier snapshots are unchanged, and the index has the changes.
func TestIndexMadeAmongWrites(t *testing.T) {
	c := newPods(t, 64<<20, 1000)
	q := selecting("", "app=7", "")
	a := q.Terms[0].attr
	before := c.newest()
	begun := c.beginIndex(indexed, before, a)
	if again := c.beginIndex(indexed, before, a); begun == nil || again != nil {
		t.Fatal("an index is made twice, or not at all")
	}
	moved := row(2, 7)
	moved.Labels = EncodeSet(map[string]string{"app": "8"})
	joined := row(4, 8)
	joined.Labels = row(0, 7).Labels
	c.apply(5, []*Change{
		{Resource: indexed, Operation: dialect.Update, Record: *moved, Previous: row(1, 7)},
		{Resource: indexed, Operation: dialect.Delete, Record: Record{Revision: 3, Key: row(0, 57).Key}, Previous: row(1, 57)},
		{Resource: indexed, Operation: dialect.Update, Record: *joined, Previous: row(1, 8)},
		{Resource: indexed, Operation: dialect.Create, Record: *row(5, 1007)},
	})
	between := c.newest()
	c.endIndex(indexed, before, a, begun, newIndex(before.rows, a))
	for name, s := range map[string]*snapshot{"before": before, "between": between, "after": c.newest()} {
		selected := c.narrow(s, q)
		if selected == nil {
			t.Fatalf("the snapshot %s has no index", name)
		}
		var got []string
		c.walk(s, q, func(r *Record) bool { got = append(got, r.Key); return true })
		want := map[bool][]string{}
		s.rows.Scan(func(r *Record) bool {
			if passesAll(q.Terms, r) {
				want[true] = append(want[true], r.Key)
			}
			return true
		})
		if fmt.Sprint(got) != fmt.Sprint(want[true]) || name == "before" && len(got) != 20 {
			t.Errorf("the snapshot %s has %v, want %v", name, got, want[true])
		}
	}
	c.sound(t)
	begun = c.beginIndex(indexed, c.newest(), attr{labelColumn, "all"})
	c.reset(6)
	c.endIndex(indexed, before, attr{labelColumn, "all"}, begun, newIndex(before.rows, a))
	c.sound(t)
}

// TestValuesGiveWayToRows reads a collection that does not fit. It is kept without its values, and with them again once it has
// shrunk and others need no memory.
func TestValuesGiveWayToRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const pods = 1000
		c := newPods(t, newPods(t, 64<<20, pods).bytes/2, pods)
		looks := func(name string, want bool) *filling {
			t.Helper()
			snap, _, f, _ := c.lookup(indexed, 0)
			if bare := snap != nil && snap.bare; bare != want {
				t.Errorf("%s: the values are left in the database: %t", name, bare)
			}
			c.sound(t)
			return f
		}
		looks("large", true)
		if objects := c.newest(); objects.rows.Len() != pods || objects.values != 1000*pods {
			t.Errorf("%d pods have values of %d bytes", objects.rows.Len(), objects.values)
		}
		for i := range 700 {
			revision := int64(i) + 2
			c.apply(revision, []*Change{{Resource: indexed, Operation: dialect.Delete, Record: Record{Revision: revision, Key: row(1, 999-i).Key}}})
		}
		looks("small, but not for long", true)
		other := Resource{Name: "others"}
		_, _, f, _ := c.lookup(other, 0)
		c.fillPods(other, f, c.position, 300)
		time.Sleep(refillAfter)
		looks("small, but others are read too", true)
		time.Sleep(refillAfter)
		c.apply(c.position+1, []*Change{{Resource: indexed, Operation: dialect.Update, Record: *row(c.position+1, 0)}})
		c.collections[other].used = 0
		f = looks("small", false)
		if f == nil {
			t.Fatal("it is not read again with its values")
		}
		c.fillPods(indexed, f, c.position, 300)
		looks("read again", false)
	})
}
