package apistorage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// schemaCodec is a codec like that of a definition: it makes what it decodes conform to the schema.
type schemaCodec struct {
	runtime.Codec
	field, value string
	decoded      *atomic.Int32
}

func (c schemaCodec) Decode(data []byte, of *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	c.decoded.Add(1)
	obj, kind, err := c.Codec.Decode(data, of, into)
	if u, ok := obj.(*unstructured.Unstructured); ok && err == nil {
		if _, found := u.Object[c.field]; !found {
			u.Object[c.field] = c.value
		}
	}
	return obj, kind, err
}

// openWidgets opens the storage of a custom resource in a version, as after a restart. Its schema sets a field that an object lacks. It counts
// the objects that are decoded.
func openWidgets(t *testing.T, store *sqlstore.Store, version, field, value string, decoded *atomic.Int32) *Storage {
	t.Helper()
	kind := schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Widget"}
	plain := runtime.NewCodec(unstructured.UnstructuredJSONScheme, unstructured.UnstructuredJSONScheme)
	s, err := New(store, Config{
		GroupResource: schema.GroupResource{Group: kind.Group, Resource: "widgets"}, Prefix: "/widgets",
		Codec: schemaCodec{plain, field, value, decoded},
		NewObject: func() runtime.Object {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(kind)
			return u
		},
		NewList: func() runtime.Object { return &unstructured.UnstructuredList{} },
	})
	harness.Must(t, err)
	return s
}

// TestCustomResourcesAreDecodedOnce counts how often rows are decoded with a definition's schema: once, or each time if the
// schema changes the stored JSON.
func TestCustomResourcesAreDecodedOnce(t *testing.T) {
	t.Parallel()
	store := storetest.Open(t, engines.SQLite, sqlstore.Options{})
	var decoded atomic.Int32
	open := func(field, value string) *Storage { return openWidgets(t, store, "v1", field, value, &decoded) }
	const objects = 3
	s := open("size", "small")
	opts := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	// The collection is in memory before anything is written: the notes of writers are kept with the rows in memory.
	harness.Must(t, s.GetList(t.Context(), "/widgets", opts, &unstructured.UnstructuredList{}))
	events, err := s.Watch(t.Context(), "/widgets", opts)
	harness.Must(t, err)
	defer events.Stop()
	for i := range objects {
		u := s.NewObject().(*unstructured.Unstructured)
		u.SetName(fmt.Sprint("w", i))
		u.SetUID("u")
		if i > 0 {
			u.Object["size"] = "large"
		}
		harness.Must(t, s.Create(t.Context(), "/widgets/"+u.GetName(), u, &unstructured.Unstructured{}, 0))
	}
	for i := range objects {
		event := (<-events.ResultChan()).Object.(runtime.CacheableObject).GetObject().(*unstructured.Unstructured)
		if event.GetName() != fmt.Sprint("w", i) || event.Object["size"] == nil || event.GetResourceVersion() == "" {
			t.Errorf("unexpected event %v", event)
		}
	}
	if n := decoded.Load(); n != objects+1 {
		t.Errorf("rows were decoded with the schema %d times for writes and watches, want %d", n, objects+1)
	}
	list := func(s *Storage, want string, times int32) {
		t.Helper()
		before := decoded.Load()
		raw := &RawList{}
		raw.Kind, raw.APIVersion = "WidgetList", "example.com/v1"
		harness.Must(t, s.GetList(t.Context(), "/widgets", opts, raw))
		var text bytes.Buffer
		err := raw.CacheEncode("", func(obj runtime.Object, w io.Writer) error { return unstructured.UnstructuredJSONScheme.Encode(obj, w) }, &text)
		harness.Must(t, err)
		objects := &unstructured.UnstructuredList{}
		harness.Must(t, s.GetList(t.Context(), "/widgets", opts, objects))
		objects.SetAPIVersion("example.com/v1")
		objects.SetKind("WidgetList")
		whole, err := json.Marshal(objects)
		harness.Must(t, err)
		if strings.TrimSpace(text.String()) != string(whole) || strings.Count(text.String(), want) != 1 {
			t.Errorf("the list is\n%s, want with one %s\n%s", &text, want, whole)
		}
		if n := decoded.Load() - before; n != times {
			t.Errorf("%d rows were decoded with the schema, want %d", n, times)
		}
	}
	// Rows written by this process need no check. The first one is stored without what the schema adds, so it is decoded for each
	// of the two lists.
	for range 2 {
		list(s, `"size":"small"`, 2)
	}
	// Under a new schema each row is checked again, once.
	changed := open("size", "medium")
	changed.exact = s.exact // as a Decorator does
	list(changed, `"size":"medium"`, objects+1)
	list(changed, `"size":"medium"`, 2)
	list(s, `"size":"small"`, 2)
}

// FuzzCut checks that insertOffset finds the one place where a text was inserted, and none if more was changed.
func FuzzCut(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a","uid":"b"}}`), 23, byte(0))
	f.Add([]byte(`{"a":{"x":1,"resourceVersion":"7"},"metadata":{"uid":"b"}}`), 11, byte(1))
	f.Add([]byte(`,"resourceVersion":"7,"resourceVersion":"7"`), 5, byte('"'))
	f.Fuzz(func(t *testing.T, data []byte, at int, flip byte) {
		if at < 0 || at > len(data) {
			return
		}
		text := (&Raw{revision: 7}).appendRevision(nil)
		whole := append(append(bytes.Clone(data[:at]), text...), data[at:]...)
		cut := insertOffset(data, whole, text)
		if cut < 0 || !bytes.Equal(append(append(bytes.Clone(data[:cut]), text...), data[cut:]...), whole) {
			t.Errorf("%q is %q with an insertion at %d, but it is found at %d", whole, data, at, cut)
		}
		if flip == 0 || len(data) == 0 {
			return
		}
		other := bytes.Clone(data)
		other[at%len(data)] ^= flip
		if cut := insertOffset(other, whole, text); cut >= 0 && !bytes.Equal(append(append(bytes.Clone(other[:cut]), text...), other[cut:]...), whole) {
			t.Errorf("%q, inserted into %q, is found at %d", text, other, cut)
		}
	})
}
