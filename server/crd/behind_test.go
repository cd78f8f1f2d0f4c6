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
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/decorate"
	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/engines"
	"github.com/sqube/sqube/test/harness"
)

// behind lets the informer of definitions see objects once caughtUp is closed, and counts gets.
func behind(next generic.StorageDecorator, caughtUp <-chan struct{}, gets *atomic.Int32) generic.StorageDecorator {
	counted := decorate.Storage(next, func(_ schema.GroupResource, s storage.Interface, destroy factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error) {
		return countedStorage{s, gets}, destroy, nil
	})
	late := decorate.Config(counted, func(c *storagebackend.ConfigForResource) {
		c.Transformer = lateTransformer{identity.NewEncryptCheckTransformer(), caughtUp}
	})
	return func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		decorator := counted
		if _, informed := newObject().(*apiextensionsv1.CustomResourceDefinition); informed {
			decorator = late
		}
		return decorator(config, prefix, key, newObject, newList, attributes, triggers, indexers)
	}
}

type countedStorage struct {
	storage.Interface
	gets *atomic.Int32
}

func (s countedStorage) Unwrap() storage.Interface { return s.Interface }

func (s countedStorage) Get(ctx context.Context, key string, o storage.GetOptions, out runtime.Object) error {
	s.gets.Add(1)
	return s.Interface.Get(ctx, key, o, out)
}

type lateTransformer struct {
	value.Transformer
	caughtUp <-chan struct{}
}

func (t lateTransformer) TransformFromStorage(ctx context.Context, data []byte, c value.Context) ([]byte, bool, error) {
	<-t.caughtUp
	return t.Transformer.TransformFromStorage(ctx, data, c)
}

// TestServerBehind has two servers on one database, one of which sees definitions later than clients of the other one. A request for
// the resource waits for it, without reading it again and again.
func TestServerBehind(t *testing.T) {
	store := storetest.Open(t, engines.SQLite, sqlstore.Options{})
	storage := apistorage.Decorator(store, nil)
	ahead := start(t, func(c *crd.Config) { c.Storage, c.Feed, c.Alone = storage, informer.NewFeed(store), false })
	caughtUp, gets := make(chan struct{}), &atomic.Int32{}
	late := start(t, func(c *crd.Config) {
		c.Storage, c.Feed, c.Alone = behind(storage, caughtUp, gets), informer.NewFeed(store), false
	})
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
