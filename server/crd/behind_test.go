package crd_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"

	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/decorate"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// behind makes watches report no objects until caughtUp is closed, and counts gets.
func behind(next generic.StorageDecorator, caughtUp <-chan struct{}, gets *atomic.Int32) generic.StorageDecorator {
	return decorate.Storage(next, func(_ schema.GroupResource, s storage.Interface, destroy factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error) {
		return lateStorage{s, caughtUp, gets}, destroy, nil
	})
}

type lateStorage struct {
	storage.Interface
	caughtUp <-chan struct{}
	gets     *atomic.Int32
}

func (s lateStorage) Get(ctx context.Context, key string, o storage.GetOptions, out runtime.Object) error {
	s.gets.Add(1)
	return s.Interface.Get(ctx, key, o, out)
}

func (s lateStorage) Watch(ctx context.Context, key string, o storage.ListOptions) (watch.Interface, error) {
	events, err := s.Interface.Watch(ctx, key, o)
	if err != nil {
		return nil, err
	}
	return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
		if e.Type != watch.Bookmark { // one ends the initial list
			<-s.caughtUp
		}
		return e, true
	}), nil
}

// TestServerBehind has two servers on one database, one of which sees definitions later than clients of the other one. A request for
// the resource waits for it, without reading it again and again.
func TestServerBehind(t *testing.T) {
	store := storetest.Open(t, engines.SQLite, sqlstore.Options{})
	storage := apistorage.Decorator(store, nil)
	ahead := start(t, func(c *crd.Config) { c.Storage, c.Sleep = storage, nil })
	caughtUp, gets := make(chan struct{}), &atomic.Int32{}
	late := start(t, func(c *crd.Config) { c.Storage, c.Sleep = behind(storage, caughtUp, gets), nil })
	ahead.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))
	time.AfterFunc(500*time.Millisecond, func() {
		if n := gets.Load(); n > 20 {
			t.Errorf("a waiting request has read the definition %d times", n)
		}
		close(caughtUp)
	})
	_, err := late.objects.Resource(widgetsV1).Namespace("default").Create(t.Context(), widget("one", map[string]any{}), metav1.CreateOptions{})
	harness.Must(t, err)
}
