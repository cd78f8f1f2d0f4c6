package apistorage

import (
	"reflect"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// TestMetadataAlone checks that watches and lists of metadata decode no whole object, even of rows that the process has not read before,
// unless upstream would convert it or repair its metadata. A watch of objects beside them gets objects.
func TestMetadataAlone(t *testing.T) {
	t.Parallel()
	store := storetest.Open(t, engines.SQLite, sqlstore.Options{})
	var decoded atomic.Int32
	open := func(version string) *Storage { return openWidgets(t, store, version, "size", "small", &decoded) }
	opts := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	var stored []*unstructured.Unstructured
	names := []string{"a", "b"}
	create := func(s *Storage, name string, generation int64) {
		u := s.NewObject().(*unstructured.Unstructured)
		u.SetName(name)
		u.SetUID("u")
		u.SetLabels(map[string]string{"of": name})
		u.SetGeneration(generation)
		created := &unstructured.Unstructured{}
		harness.Must(t, s.Create(t.Context(), "/widgets/"+name, u, created, 0))
		stored = append(stored, created)
	}
	is := func(got, want runtime.Object) {
		t.Helper()
		m, err := meta.Accessor(want)
		harness.Must(t, err)
		if view, ok := got.(*metav1.PartialObjectMetadata); !ok || !reflect.DeepEqual(view.ObjectMeta, meta.AsPartialObjectMetadata(m).ObjectMeta) {
			t.Errorf("got %T %v, want the metadata of %v", got, got, want)
		}
	}
	first := open("v1")
	views, err := first.Watch(WithMetadata(t.Context()), "/widgets", opts)
	harness.Must(t, err)
	defer views.Stop()
	objects, err := first.Watch(t.Context(), "/widgets", opts)
	harness.Must(t, err)
	defer objects.Stop()
	write := func(name string, generation int64) {
		create(first, name, generation)
		is(received(views), stored[len(stored)-1])
		if got, ok := received(objects).(*unstructured.Unstructured); !ok || got.GetName() != name || got.Object["size"] == nil {
			t.Errorf("the watch of objects got %v", got)
		}
	}
	for _, name := range names {
		write(name, 1)
	}
	read := func(what string, s *Storage, want int32) {
		t.Helper()
		before := decoded.Load()
		list := &metav1.PartialObjectMetadataList{}
		harness.Must(t, s.GetList(t.Context(), "/widgets", opts, list))
		initial, err := s.Watch(WithMetadata(t.Context()), "/widgets", opts)
		harness.Must(t, err)
		defer initial.Stop()
		for i := range list.Items {
			is(&list.Items[i], stored[i])
			is(received(initial), stored[i])
		}
		if len(list.Items) != len(stored) {
			t.Errorf("%s: a list of %d objects, want %d", what, len(list.Items), len(stored))
		}
		if n := decoded.Load() - before; n != want {
			t.Errorf("%s: %d objects were decoded, want %d", what, n, want)
		}
	}
	read("by the writer", first, 0)
	read("after a restart", open("v1"), 0)
	read("in another version", open("v2"), 2*int32(len(names)))
	write("c", 0)
	read("without a generation, which upstream adds", open("v1"), 2)
}

// received returns the object of the next event.
func received(w watch.Interface) runtime.Object {
	event := <-w.ResultChan()
	if cached, ok := event.Object.(runtime.CacheableObject); ok {
		return cached.GetObject()
	}
	return event.Object
}
