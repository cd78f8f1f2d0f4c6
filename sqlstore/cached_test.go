package sqlstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

var things = Resource{Name: "things"}

// openMemory opens a log in memory. It deletes no expired objects.
func openMemory(t *testing.T, opts Options) *Store {
	t.Helper()
	engine, err := sqlite.OpenMemory(t.Context())
	harness.Must(t, err)
	opts.ExpiryInterval = time.Hour
	s, err := Open(t.Context(), engine, opts)
	harness.Must(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestReaderThatComesBackLate has a reader wait for a list that fails. By the time it looks into the cache again, another list is
// due, and whoever reads next must not wait for one that nobody makes.
func TestReaderThatComesBackLate(t *testing.T) {
	s := openMemory(t, Options{})
	failing := &filling{done: make(chan struct{})}
	col := &collection{filling: failing}
	s.cache.mu.Lock()
	s.cache.collections[things] = col
	s.cache.mu.Unlock()
	read := make(chan error, 1)
	go func() {
		_, err := s.Page(t.Context(), Query{Resource: things})
		read <- err
	}()
	for waits := false; !waits; time.Sleep(time.Millisecond) {
		s.cache.mu.Lock()
		waits = s.cache.clock > 0
		s.cache.mu.Unlock()
	}
	s.cache.mu.Lock()
	col.filling = nil
	close(failing.done)
	s.cache.mu.Unlock()
	harness.Must(t, <-read)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := s.Page(ctx, Query{Resource: things}); err != nil {
		t.Errorf("the next read: %v", err)
	}
}

// TestExpiryOfLargeObjects checks that few large objects are in memory at a time to be deleted.
func TestExpiryOfLargeObjects(t *testing.T) {
	s := openMemory(t, Options{})
	for _, key := range []string{"a", "b", "c"} {
		w := &Write{
			Operation: dialect.Create, Resource: things, Key: key, Name: key, ExpiresAt: 1,
			Labels: "{}", Fields: "{}", Value: make([]byte, maxGroupBytes/2),
		}
		if _, err := s.Write(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	if due, err := s.due(t.Context()); err != nil || len(due) != 2 {
		t.Errorf("%d objects, %v", len(due), err)
	}
	harness.Must(t, s.expireDue(t.Context()))
	if n, err := s.Count(t.Context(), Query{Resource: things}); err != nil || n != 0 {
		t.Errorf("%d objects remain, %v", n, err)
	}
}

// TestReaderComesBehindANotification has a reader wait for a revision older than the one that the tail has been notified of,
// while a group is being committed. Whoever publishes that group must still see that there is more.
func TestReaderComesBehindANotification(t *testing.T) {
	s := openMemory(t, Options{})
	at := s.hub.at()
	s.committing.Store(true)
	defer s.committing.Store(false)
	for _, revision := range []int64{at + 3, at + 1} {
		if s.isForeign(revision) {
			t.Errorf("revision %d is read while it may be that of the commit", revision)
		}
	}
	if heard := s.heard.Load(); heard != at+3 {
		t.Errorf("the newest revision notified of is %d, want %d", heard, at+3)
	}
}

// committedAlone is an engine whose commits are in the log for a while before the store knows.
type committedAlone struct {
	dialect.Engine
	committed, goOn chan struct{}
}

// Commit implements dialect.Engine.
func (e *committedAlone) Commit(ctx context.Context, group []dialect.Write) (dialect.Committed, error) {
	committed, err := e.Engine.Commit(ctx, group)
	close(e.committed)
	<-e.goOn
	return committed, err
}

// TestReadsDoNotGoBack reads from the log what has just been committed there. The next read, from memory, must return it too.
func TestReadsDoNotGoBack(t *testing.T) {
	memory, err := sqlite.OpenMemory(t.Context())
	harness.Must(t, err)
	engine := &committedAlone{memory, make(chan struct{}), make(chan struct{})}
	s, err := Open(t.Context(), engine, Options{ExpiryInterval: time.Hour})
	harness.Must(t, err)
	reads := map[string]func() (int64, error){
		"get": func() (int64, error) {
			_, at, err := s.get(t.Context(), things, "a")
			return at.Revision, err
		},
		"page": func() (int64, error) {
			page, err := s.pageOfLog(t.Context(), Query{Resource: things})
			return page.Revision, err
		},
		"empty page": func() (int64, error) {
			page, err := s.pageOfLog(t.Context(), Query{Resource: Resource{Name: "others"}})
			return page.Revision, err
		},
	}
	written := make(chan error, 1)
	go func() {
		_, err := s.Write(t.Context(), &Write{Operation: dialect.Create, Resource: things, Key: "a", Name: "a", Labels: "{}", Fields: "{}", Value: []byte("{}")})
		written <- err
	}()
	<-engine.committed
	done := make(chan struct{}, len(reads))
	for name, read := range reads {
		go func() {
			defer func() { done <- struct{}{} }()
			if saw, err := read(); err != nil || saw > s.hub.at() {
				t.Errorf("a %s returned revision %d (error %v) while reads from memory were at %d", name, saw, err, s.hub.at())
			}
		}()
	}
	time.Sleep(50 * time.Millisecond) // for reads that do not wait
	close(engine.goOn)
	for range reads {
		<-done
	}
	if err := <-written; err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestFillsShareTheBudget reads collections into memory at once, as after a start. Each would fit, but not all together.
func TestFillsShareTheBudget(t *testing.T) {
	const budget = 4 << 20
	c := newCache(budget, 1)
	name := func(i int) Resource { return Resource{Name: fmt.Sprint(i)} }
	most := int64(0) // memory of all collections being filled
	var fill func(i int)
	fill = func(i int) {
		_, _, f, _ := c.lookup(name(i), 0)
		c.fill(name(i), f, func(add func(*Record) error) (int64, error) {
			for n := range 2000 { // about 2.5 MB
				if err := add(row(1, n)); err != nil {
					return 0, err
				}
			}
			most = max(most, c.filling.Load())
			if i < 5 {
				fill(i + 1) // while this one is not ready
			}
			return 1, nil
		})
	}
	fill(0)
	if c.collections[name(0)].rows == nil {
		t.Error("the first collection is not in memory")
	}
	if most > budget {
		t.Errorf("the collections being read into memory took %d bytes, more than %d", most, budget)
	}
	if left := c.filling.Load(); left != 0 {
		t.Errorf("%d bytes still count as being read", left)
	}
	small := Resource{Name: "small"}
	c.filling.Add(2 * budget)
	_, _, f, _ := c.lookup(small, 0)
	c.fillPods(small, f, 1, 10)
	if col := c.collections[small]; col.rows == nil || col.bare {
		t.Error("a small collection is not read into memory while large ones are")
	}
}

// TestChangesDuringAFill changes a large object while its collection is read into memory.
func TestChangesDuringAFill(t *testing.T) {
	const budget = 1 << 20
	c := newCache(budget, 1)
	_, _, f, _ := c.lookup(things, 0)
	before := &Record{Revision: 1, Key: "a", Labels: "{}", Fields: "{}", Value: make([]byte, budget)}
	c.apply(2, []*Change{{Resource: things, Operation: dialect.Update, Record: Record{Revision: 2, Key: "a"}, Previous: before}})
	if len(f.missed) > 0 {
		t.Errorf("a change is kept whose previous version alone takes the budget of %d bytes", budget)
	}
}

// TestOlderSnapshots reads several collections between their changes: the older states of all together have a part of the budget.
func TestOlderSnapshots(t *testing.T) {
	c := newCache(1<<20, 0)
	resources := []Resource{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}}
	for _, r := range resources {
		c.collections[r] = &collection{rows: newTree(byKey)}
	}
	kept := int64(0)
	for revision := int64(1); revision <= 100; revision++ {
		resource := resources[revision%4]
		c.lookup(resource, 0)
		c.apply(revision, []*Change{{Resource: resource, Operation: dialect.Update, Record: Record{Revision: revision, Key: "x", Value: make([]byte, 5000)}}})
		kept = 0
		for _, col := range c.collections {
			kept += col.olderBytes()
		}
		if kept != c.older.Load() || kept > c.budget/olderShare || c.size() > c.budget {
			t.Fatalf("older snapshots keep %d bytes, count %d, and may keep %d; the cache has %d", kept, c.older.Load(), c.budget/olderShare, c.size())
		}
	}
	if kept == 0 {
		t.Error("no older state is kept")
	}
	c.drop(c.collections[resources[0]])
	if c.reset(101); c.size() != 0 {
		t.Errorf("after a reset, the cache counts %d bytes", c.size())
	}
}

// TestEmptyLog checks that collections of a new log are in memory without having been read, unless they were changed first.
func TestEmptyLog(t *testing.T) {
	c := newCache(1<<20, EmptyRevision)
	c.empty = true
	name := func(name string) Resource { return Resource{Name: name} }
	begins := func(resource Resource) bool {
		snap, _, _, begins := c.lookup(resource, 0)
		if begins != (snap == nil) {
			t.Errorf("the snapshot of %s is %v", resource.Name, snap)
		}
		return begins
	}
	if begins(name("read")) {
		t.Error("an empty collection is read from the database")
	}
	for i, resource := range []Resource{name("read"), name("changed")} {
		revision := int64(EmptyRevision + 1 + i)
		c.apply(revision, []*Change{{Resource: resource, Operation: dialect.Create, Record: Record{Revision: revision, Key: "x", Value: []byte("{}")}}})
	}
	if size, known, _ := c.sizeOf(name("read")); !known || size.objects != 1 || begins(name("read")) {
		t.Errorf("a collection in memory has %d objects", size.objects)
	}
	if _, known, _ := c.sizeOf(name("changed")); known || !begins(name("changed")) {
		t.Error("a collection that was changed before its first read is taken for empty")
	}
	if size, known, _ := c.sizeOf(name("other")); !known || size.objects != 0 {
		t.Errorf("a collection that has not changed has %d objects", size.objects)
	}
	if c.reset(10); !begins(name("other")) {
		t.Error("after missed changes, a collection is taken for empty")
	}
}
