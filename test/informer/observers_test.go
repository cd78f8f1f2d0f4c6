package informer

import (
	"context"
	"net/http"
	"path"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	featuretesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/test/crash/ledger"
	"github.com/sqube/sqube/test/harness"
)

// observer receives the changes of one kind.
type observer struct {
	name  string
	kind  ledger.Kind
	log   *ledger.Log
	lists func() int // how often it has listed
	check func(book *ledger.Ledger, seen []ledger.Event, lists int) error
}

// observe starts a watch and two informers of each kind and returns once they have caught up.
func observe(t *testing.T, ctx context.Context, config *rest.Config, client dynamic.Interface) []observer {
	t.Helper()
	var all []observer
	for _, kind := range kinds {
		log, err := ledger.Follow(ctx, client, kind)
		harness.Must(t, err)
		all = append(all, observer{
			name: "watch", kind: kind, log: log, lists: func() int { return 1 },
			check: func(book *ledger.Ledger, seen []ledger.Event, _ int) error { return book.CheckEvents(kind, seen) },
		})
	}
	all = append(all, inform(t, ctx, config, "informer that lists", false)...)
	return append(all, inform(t, ctx, config, "informer with watch-list", true)...)
}

// inform starts informers of all kinds and returns once they have caught up.
func inform(t *testing.T, ctx context.Context, config *rest.Config, name string, watchList bool) []observer {
	t.Helper()
	// An informer reads the feature when it starts, which the earlier ones have done.
	featuretesting.SetFeatureDuringTest(t, features.WatchListClient, watchList)
	config = rest.CopyConfig(config)
	requests := newCounter()
	config.Wrap(requests.wrap)
	typedClient, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	dynamicClient, err := dynamic.NewForConfig(config)
	harness.Must(t, err)
	typed := informers.NewSharedInformerFactory(typedClient, 0)
	custom := dynamicinformer.NewDynamicSharedInformerFactory(dynamicClient, 0)
	shared := map[string]cache.SharedIndexInformer{
		ledger.Pods.Resource.Resource:       typed.Core().V1().Pods().Informer(),
		ledger.Namespaces.Resource.Resource: typed.Core().V1().Namespaces().Informer(),
		ledger.Gadgets.Resource.Resource:    custom.ForResource(ledger.Gadgets.Resource).Informer(),
	}
	var all []observer
	for _, kind := range kinds {
		resource := kind.Resource.Resource
		log := ledger.NewLog()
		if _, err := shared[resource].AddEventHandler(recorder(t, kind, log)); err != nil {
			t.Fatal(err)
		}
		all = append(all, observer{
			name: name, kind: kind, log: log, lists: func() int { return requests.count(resource) },
			check: func(book *ledger.Ledger, seen []ledger.Event, lists int) error {
				return book.CheckInformer(kind, seen, lists)
			},
		})
	}
	typed.Start(ctx.Done())
	custom.Start(ctx.Done())
	for _, kind := range kinds {
		resource := kind.Resource.Resource
		if !cache.WaitForCacheSync(ctx.Done(), shared[resource].HasSynced) {
			t.Fatalf("%s of %s did not catch up", name, resource)
		}
		if requests.count(resource) != 1 || requests.streamed(resource) != watchList {
			t.Errorf("%s of %s caught up with %d lists, as a stream: %t", name, resource, requests.count(resource), requests.streamed(resource))
		}
	}
	return all
}

// recorder returns a handler that logs the events of the writers' objects.
func recorder(t *testing.T, kind ledger.Kind, log *ledger.Log) cache.ResourceEventHandler {
	record := func(how watch.EventType, o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		object, err := meta.Accessor(o)
		if err != nil {
			t.Errorf("an informer reported %T: %v", o, err)
			return
		}
		if object.GetLabels()[ledger.Label] == "" {
			return
		}
		version, err := ledger.Version(object.GetResourceVersion())
		if err != nil {
			t.Error(err)
			return
		}
		log.Add(ledger.Event{Type: how, Key: ledger.Key{Resource: kind.Resource.Resource, Name: object.GetName()}, Version: version})
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { record(watch.Added, o) },
		UpdateFunc: func(_, o any) { record(watch.Modified, o) },
		DeleteFunc: func(o any) { record(watch.Deleted, o) },
	}
}

// counter counts the requests that return all objects of a resource: lists, and watches that begin with them.
type counter struct {
	mu    sync.Mutex
	lists map[string]int  // by resource
	watch map[string]bool // the last of them was a watch
}

func newCounter() *counter { return &counter{lists: map[string]int{}, watch: map[string]bool{}} }

func (c *counter) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		query := r.URL.Query()
		watches, initial := query.Get("watch") == "true", query.Get("sendInitialEvents") == "true"
		if (!watches || initial) && query.Get("continue") == "" {
			resource := path.Base(r.URL.Path)
			c.mu.Lock()
			c.lists[resource]++
			c.watch[resource] = watches
			c.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

func (c *counter) count(resource string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lists[resource]
}

func (c *counter) streamed(resource string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watch[resource]
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
