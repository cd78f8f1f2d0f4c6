package informer_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// TestInformer checks what handlers and listers get of creations, updates and deletions, before, between and after the start of the informer.
func TestInformer(t *testing.T) {
	everyEngine(t, func(t *testing.T, open storetest.Opener) {
		store := storetest.Open(t, open, sqlstore.Options{})
		maps, feed := newConfigMaps(store), informer.NewFeed(store)
		i := newInformer(feed, maps)
		harness.Must(t, i.SetTransform(func(object any) (any, error) {
			object.(*corev1.ConfigMap).Annotations = map[string]string{"passed": "transform"}
			return object, nil
		}))
		first := maps.set(t, "one")
		early, late, gone := &recorder{}, &recorder{}, &recorder{}
		registered, removed := add(t, i, early), add(t, i, gone)
		if i.HasSynced() || registered.HasSynced() || i.LastSyncResourceVersion() != "" || i.IsStopped() {
			t.Error("an informer that was not started has synced, or stopped")
		}
		harness.Must(t, i.RemoveEventHandler(removed))
		harness.Must(t, i.RemoveEventHandler(removed))
		stop := start(t, i)
		<-i.HasSyncedChecker().Done()
		<-registered.HasSyncedChecker().Done()
		early.expect(t, "initial one@"+first)
		if err := i.SetTransform(nil); err == nil {
			t.Error("an informer that runs got another transform")
		}

		second := maps.set(t, "two")
		harness.Eventually(t, "the indexer has the second", func() bool { return len(i.GetStore().List()) == 2 })
		<-add(t, i, late).HasSyncedChecker().Done()
		if got := late.all(); len(got) != 2 || !slices.Contains(got, "initial one@"+first) || !slices.Contains(got, "initial two@"+second) {
			t.Errorf("a late handler begins with %v", got)
		}
		third := maps.set(t, "one", "changed", "yes")
		fourth := maps.remove(t, "one")
		fifth := maps.set(t, "one")
		early.expect(t, "initial one@"+first, "added two@"+second, "updated one@"+first+" one@"+third, "deleted one@"+fourth, "added one@"+fifth)
		if got := late.all(); len(got) != 5 {
			t.Errorf("a late handler got %v", got)
		}
		found, ok, err := i.GetIndexer().GetByKey("default/one")
		if err != nil || !ok || found.(*corev1.ConfigMap).ResourceVersion != fifth || found.(*corev1.ConfigMap).Annotations["passed"] == "" {
			t.Errorf("the indexer has %v, %t, %v", found, ok, err)
		}
		if all, err := i.GetIndexer().ByIndex(cache.NamespaceIndex, "default"); err != nil || len(all) != 2 {
			t.Errorf("the index has %v: %v", all, err)
		}
		// The version advances with the log, not only with the collection.
		elsewhere := newConfigMaps(store)
		elsewhere.resource.Name = "elsewhere"
		last := elsewhere.set(t, "one")
		harness.Eventually(t, "the informer reaches the end of the log", func() bool { return i.LastSyncResourceVersion() == last })

		stop()
		if _, err := i.AddEventHandler(late); err == nil || !i.IsStopped() {
			t.Errorf("a stopped informer takes handlers: %v", err)
		}
		harness.Must(t, i.RemoveEventHandler(registered))
		if got := gone.all(); len(got) > 0 {
			t.Errorf("a handler that was removed got %v", got)
		}
	})
}

// TestInformerOfOthersWrites has another process write to the database.
func TestInformerOfOthersWrites(t *testing.T) {
	open := engines.Postgres(t)
	here := storetest.Start(t, storetest.OpenEngine(t, open), sqlstore.Options{})
	there := newConfigMaps(storetest.Start(t, storetest.OpenEngine(t, open), sqlstore.Options{}))
	i := newInformer(informer.NewFeed(here), newConfigMaps(here))
	seen := &recorder{}
	add(t, i, seen)
	first := there.set(t, "one")
	start(t, i)
	<-i.HasSyncedChecker().Done()
	second := there.set(t, "one", "changed", "yes")
	third := there.remove(t, "one")
	seen.expect(t, "initial one@"+first, "updated one@"+first+" one@"+second, "deleted one@"+third)
}

// TestInformerFallsBehind makes more changes than the store queues. The informer then finds out what is different.
func TestInformerFallsBehind(t *testing.T) {
	store := storetest.Open(t, engines.SQLite, sqlstore.Options{})
	maps := newConfigMaps(store)
	i := newInformer(informer.NewFeed(store), maps)
	seen := &recorder{}
	add(t, i, seen)
	same, changed, gone := maps.set(t, "same"), maps.set(t, "changed"), maps.set(t, "gone")
	start(t, i)
	<-i.HasSyncedChecker().Done()
	gate := make(chan struct{})
	maps.gate.Store(&gate)
	maps.set(t, "changed", "n", "0") // now the feed waits at the gate
	again := maps.set(t, "changed", "n", "1")
	maps.remove(t, "gone")
	var writers sync.WaitGroup
	for w := range 64 {
		writers.Go(func() {
			for n := range 140 { // together more than a subscription takes
				maps.set(t, fmt.Sprintf("many-%d", w), "n", strconv.Itoa(n))
			}
		})
	}
	writers.Wait()
	harness.Eventually(t, "the store ends the subscription", func() bool { return store.Stats().SlowWatches > 0 })
	maps.gate.Store(nil)
	close(gate)
	lastly := maps.set(t, "lastly")
	harness.Eventually(t, "the informer catches up", func() bool { return slices.Contains(seen.all(), "added lastly@"+lastly) })
	lines := strings.Join(seen.all(), "\n")
	for _, want := range []string{" changed@" + again, "lost default/gone as gone@" + gone, "updated changed@" + changed} {
		if !strings.Contains(lines, want) {
			t.Errorf("the handler did not get %q", want)
		}
	}
	if strings.Count(lines, "same@"+same) != 1 {
		t.Error("the handler got an object again that has not changed")
	}
	if n := len(i.GetStore().List()); n != 2+64+1 {
		t.Errorf("the indexer has %d objects", n)
	}
}

// TestInformersOfManyWriters checks that handlers which come and go see every object's versions in order, and the last one of each, while
// many write to two resources. Another handler, which does not return, holds up nobody.
func TestInformersOfManyWriters(t *testing.T) {
	everyEngine(t, func(t *testing.T, open storetest.Opener) {
		store := storetest.Open(t, open, sqlstore.Options{})
		feed := informer.NewFeed(store)
		hold := make(chan struct{})
		defer close(hold)
		var sources []*configMaps
		var running []*informer.Informer
		for _, name := range []string{"configmaps", "others"} {
			source := newConfigMaps(store)
			source.resource.Name = name
			i := newInformer(feed, source)
			add(t, i, &recorder{hold: hold})
			sources, running = append(sources, source), append(running, i)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			i.Start(ctx)
		}
		var writers sync.WaitGroup
		for w := range 8 {
			for _, source := range sources {
				writers.Go(func() {
					for n := range 40 {
						if name := fmt.Sprintf("w%d-%d", w, n%4); n%5 == 4 {
							source.remove(t, fmt.Sprintf("w%d-%d", w, (n-1)%4))
						} else {
							source.set(t, name, "n", strconv.Itoa(n))
						}
					}
				})
			}
		}
		checks := make([][]*ordered, len(running))
		for round := range 20 {
			for n, i := range running {
				check := &ordered{t: t, seen: map[string]int64{}}
				if registered := add(t, i, check); round%3 == 0 {
					harness.Must(t, cache.ShutDownEventHandler(i, registered))
				} else {
					checks[n] = append(checks[n], check)
				}
			}
		}
		writers.Wait()
		for n, i := range running {
			end := sources[n].set(t, "end")
			for _, check := range checks[n] {
				harness.Eventually(t, "a handler sees the end", func() bool { return check.sees("end", end) })
			}
			harness.Eventually(t, "the indexer has what is stored", func() bool { return slices.Equal(versions(i.GetStore().List()), sources[n].versions(t)) })
		}
	})
}

// ordered is a handler that checks the order of what it gets.
type ordered struct {
	t    testing.TB
	mu   sync.Mutex
	seen map[string]int64 // the last version of each object
}

func (o *ordered) note(object any, present bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	m := object.(metav1.Object)
	version, _ := strconv.ParseInt(m.GetResourceVersion(), 10, 64)
	if before := o.seen[m.GetName()]; version <= max(before, -before) {
		o.t.Errorf("%s@%d came after %d", m.GetName(), version, before)
	}
	if o.seen[m.GetName()] = version; !present {
		o.seen[m.GetName()] = -version
	}
}

func (o *ordered) sees(name, version string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strconv.FormatInt(o.seen[name], 10) == version
}

func (o *ordered) OnAdd(object any, _ bool) { o.note(object, true) }
func (o *ordered) OnUpdate(_, object any)   { o.note(object, true) }
func (o *ordered) OnDelete(object any)      { o.note(object, false) }

func versions(objects []any) (all []string) {
	for _, object := range objects {
		all = append(all, named(object))
	}
	slices.Sort(all)
	return all
}

// versions returns what is stored.
func (c *configMaps) versions(t testing.TB) (all []string) {
	objects, err := informer.NewFeed(c.store).List(t.Context(), c, "default")
	harness.Must(t, err)
	for _, object := range objects {
		all = append(all, named(object))
	}
	slices.Sort(all)
	return all
}

// TestInformerOfUnreadable has a collection that can't be read for a while, at first and later.
func TestInformerOfUnreadable(t *testing.T) {
	store := storetest.Open(t, engines.SQLite, sqlstore.Options{})
	maps := newConfigMaps(store)
	i := newInformer(informer.NewFeed(store), maps)
	failures := make(chan error, 100)
	harness.Must(t, i.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { failures <- err }))
	seen := &recorder{}
	add(t, i, seen)
	first := maps.set(t, "one")
	maps.broken.Store(true)
	start(t, i)
	if err := <-failures; !errors.Is(err, errBroken) || i.HasSynced() {
		t.Errorf("an informer that can't read its objects says %v", err)
	}
	maps.broken.Store(false)
	<-i.HasSyncedChecker().Done()
	maps.broken.Store(true)
	second := maps.set(t, "one", "n", "2")
	<-failures
	maps.broken.Store(false)
	third := maps.set(t, "two")
	seen.expect(t, "initial one@"+first, "updated one@"+first+" one@"+second, "added two@"+third)
}

// TestInformerLeavesOut has an object that is left out at times.
func TestInformerLeavesOut(t *testing.T) {
	store := storetest.Open(t, engines.SQLite, sqlstore.Options{})
	maps := newConfigMaps(store)
	i := newInformer(informer.NewFeed(store), maps)
	seen := &recorder{}
	add(t, i, seen)
	first := maps.set(t, "one")
	maps.set(t, "never", "out", "yes")
	start(t, i)
	<-i.HasSyncedChecker().Done()
	second := maps.set(t, "one", "out", "yes")
	third := maps.set(t, "one")
	maps.remove(t, "never")
	fourth := maps.remove(t, "one")
	seen.expect(t, "initial one@"+first, "deleted one@"+second, "added one@"+third, "deleted one@"+fourth)
}

// TestInformerRests checks that handlers take no goroutine while they have nothing to do, and all informers of a feed one.
func TestInformerRests(t *testing.T) {
	store := storetest.Open(t, engines.SQLite, sqlstore.Options{})
	feed := informer.NewFeed(store)
	maps := newConfigMaps(store)
	seen := &recorder{}
	ctx, stop := context.WithCancel(t.Context())
	var running []*informer.Informer
	for range 20 {
		i := newInformer(feed, maps)
		for range 5 {
			add(t, i, seen)
		}
		i.Start(ctx)
		<-i.HasSyncedChecker().Done()
		running = append(running, i)
	}
	maps.set(t, "one")
	harness.Eventually(t, "all handlers are called", func() bool { return len(seen.all()) == 100 })
	goroutines := func(function string) int {
		text := make([]byte, 4<<20)
		return strings.Count(string(text[:runtime.Stack(text, true)]), function)
	}
	harness.Eventually(t, "the handlers' goroutines end", func() bool { return goroutines("informer.(*handler).run(") == 0 })
	if n := goroutines("informer.(*Feed).run("); n != 1 {
		t.Errorf("%d goroutines feed", n)
	}
	stop()
	harness.Eventually(t, "the feed's goroutine ends", func() bool { return goroutines("informer.(*Feed).run(") == 0 })
	for _, i := range running {
		if !i.IsStopped() {
			t.Error("an informer runs on")
		}
	}
}

// TestInformerResyncs checks that a handler gets all objects again and again if it and its informer ask for that.
func TestInformerResyncs(t *testing.T) {
	store := storetest.Open(t, engines.SQLite, sqlstore.Options{})
	maps := newConfigMaps(store)
	first := maps.set(t, "one")
	i := newInformer(informer.NewFeed(store), maps, func(o *informer.Options) { o.Resync = time.Millisecond })
	seen, never := &recorder{}, &recorder{}
	add(t, i, seen)
	_, err := i.AddEventHandlerWithResyncPeriod(never, 0)
	harness.Must(t, err)
	start(t, i)
	again := "updated one@" + first + " one@" + first
	harness.Eventually(t, "two updates without a change", func() bool {
		all := seen.all()
		return len(all) >= 3 && all[1] == again && all[2] == again
	})
	never.expect(t, "initial one@"+first)
}

// TestInformerByRequests checks an informer of what is not in the store, which reads by requests, and the factory that makes it.
func TestInformerByRequests(t *testing.T) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "first"}}
	client := fake.NewClientset(object)
	factory := informer.NewFactory(informers.NewSharedInformerFactory(client, 0), nil, nil)
	factory.Source = func(schema.GroupVersionResource) informer.Source { return nil }
	generic, err := factory.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	harness.Must(t, err)
	typed := factory.Core().V1().ConfigMaps()
	early, late := &recorder{}, &recorder{}
	registered := add(t, typed.Informer(), early)
	ctx, stop := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	for kind, synced := range factory.WaitForCacheSync(t.Context().Done()) {
		if !synced {
			t.Errorf("%s has not synced", kind)
		}
	}
	<-registered.HasSyncedChecker().Done()
	removed := add(t, generic.Informer(), late)
	early.expect(t, "initial first@")
	late.expect(t, "initial first@")
	if found, err := typed.Lister().ConfigMaps("default").Get("first"); err != nil || found.Name != "first" {
		t.Errorf("the lister finds %v: %v", found, err)
	}
	harness.Must(t, generic.Informer().RemoveEventHandler(removed))
	harness.Must(t, generic.Informer().RemoveEventHandler(registered))
	stop()
	factory.Shutdown()
	if !typed.Informer().IsStopped() {
		t.Error("the informer runs on")
	}
	if requests := client.Actions(); len(requests) != 2 {
		t.Errorf("the requests of one informer, a list and a watch, are %v", requests)
	}
}
