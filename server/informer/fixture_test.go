package informer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// everyEngine runs a test on logs of each engine.
func everyEngine(t *testing.T, test func(t *testing.T, open storetest.Opener)) {
	for name, open := range map[string]storetest.Opener{"sqlite": engines.SQLite, "postgres": engines.Postgres} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open)
		})
	}
}

// configMaps is a source of ConfigMaps, and writes them.
type configMaps struct {
	store    *sqlstore.Store
	resource sqlstore.Resource
	broken   atomic.Bool                   // no object can be read
	gate     atomic.Pointer[chan struct{}] // the next object is read once it is closed
}

func newConfigMaps(store *sqlstore.Store) *configMaps {
	return &configMaps{store: store, resource: sqlstore.Resource{Name: "configmaps"}}
}

func (c *configMaps) Resource() sqlstore.Resource { return c.resource }

func (c *configMaps) Terms() []sqlstore.Term { return nil }

var errBroken = errors.New("the object is broken")

// Object leaves out ConfigMaps whose data say so.
func (c *configMaps) Object(_ context.Context, r *sqlstore.Record) (runtime.Object, error) {
	if gate := c.gate.Load(); gate != nil {
		<-*gate
	}
	if c.broken.Load() {
		return nil, errBroken
	}
	object := &corev1.ConfigMap{}
	if err := json.Unmarshal(r.Value, object); err != nil || object.Data["out"] != "" {
		return nil, err
	}
	object.ResourceVersion = strconv.FormatInt(r.Revision, 10)
	return object, nil
}

// set creates or updates a ConfigMap in the namespace default, and returns its revision.
func (c *configMaps) set(t testing.TB, name string, data ...string) string {
	t.Helper()
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		object.Data[data[i]] = data[i+1]
	}
	value, err := json.Marshal(object)
	harness.Must(t, err)
	return c.write(t, name, dialect.Create, value)
}

// remove deletes a ConfigMap, and returns the revision.
func (c *configMaps) remove(t testing.TB, name string) string {
	t.Helper()
	return c.write(t, name, dialect.Delete, nil)
}

func (c *configMaps) write(t testing.TB, name string, operation dialect.Operation, value []byte) string {
	t.Helper()
	key := "default/" + name
	before, _, err := c.store.Get(t.Context(), c.resource, key)
	harness.Must(t, err)
	if before != nil && operation == dialect.Create {
		operation = dialect.Update
	}
	revision, err := c.store.Write(t.Context(), &sqlstore.Write{
		Operation: operation, Resource: c.resource, Key: key, Namespace: "default", Name: name, UID: name, Previous: before,
		Labels: sqlstore.EncodeSet(nil), Fields: sqlstore.EncodeSet(nil), Value: value,
	})
	harness.Must(t, err)
	return strconv.FormatInt(revision, 10)
}

// newInformer returns an informer of a source, which has not been started.
func newInformer(feed *informer.Feed, source informer.Source, change ...func(*informer.Options)) *informer.Informer {
	made := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.ConfigMap{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	options := informer.Options{Name: "configmaps", Feed: feed, Source: func() informer.Source { return source }}
	for _, f := range change {
		f(&options)
	}
	return informer.New(made, options)
}

// start starts an informer, and returns a function that stops it and waits for it.
func start(t testing.TB, i *informer.Informer) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { i.RunWithContext(ctx) })
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return stop
}

// recorder is a handler that records its calls as lines.
type recorder struct {
	mu    sync.Mutex
	lines []string
	hold  chan struct{} // calls wait until it is closed; nil for none
}

func (r *recorder) note(format string, parts ...any) {
	if r.hold != nil {
		<-r.hold
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, parts...))
}

func named(object any) string {
	o := object.(metav1.Object)
	return o.GetName() + "@" + o.GetResourceVersion()
}

func (r *recorder) OnAdd(object any, initial bool) {
	if initial {
		r.note("initial %s", named(object))
	} else {
		r.note("added %s", named(object))
	}
}

func (r *recorder) OnUpdate(before, after any) { r.note("updated %s %s", named(before), named(after)) }

func (r *recorder) OnDelete(object any) {
	if last, unknown := object.(cache.DeletedFinalStateUnknown); unknown {
		r.note("lost %s as %s", last.Key, named(last.Obj))
		return
	}
	r.note("deleted %s", named(object))
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}

// expect waits until the handler has recorded these lines.
func (r *recorder) expect(t testing.TB, want ...string) {
	t.Helper()
	harness.Eventually(t, strings.Join(want, ", "), func() bool { return len(r.all()) >= len(want) })
	if got := r.all(); !slices.Equal(got, want) {
		t.Errorf("the handler was called with\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func add(t testing.TB, i cache.SharedInformer, h cache.ResourceEventHandler) cache.ResourceEventHandlerRegistration {
	t.Helper()
	registered, err := i.AddEventHandler(h)
	harness.Must(t, err)
	return registered
}
