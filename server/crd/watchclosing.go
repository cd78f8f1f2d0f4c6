package crd

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// closeWatchesOnDestroy decorates storages so that the watches of one end when it is destroyed: they would go on with the old
// schema and conversion of a custom resource, or wait for what can't come. Clients watch again and get the new, or learn
// that there is nothing.
//
// In kube-apiserver the watch cache does this when its storage is destroyed, which upstream's handler does for the
// storages of an old definition, some seconds after the change.
func closeWatchesOnDestroy(decorate generic.StorageDecorator) generic.StorageDecorator {
	return func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		s, destroy, err := decorate(config, prefix, key, newObject, newList, attributes, triggers, indexers)
		if err != nil {
			return nil, nil, err
		}
		life, end := context.WithCancel(context.Background())
		return watchCloser{s, life}, func() {
			end()
			destroy()
		}, nil
	}
}

// watchCloser is a storage whose watches end with its life.
type watchCloser struct {
	storage.Interface
	life context.Context
}

// Unwrap returns the storage itself, which is not watchCloser.
func (m watchCloser) Unwrap() storage.Interface { return m.Interface }

// Watch implements storage.Interface.
func (m watchCloser) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(m.life, cancel)
	context.AfterFunc(ctx, func() { forget() })
	w, err := m.Interface.Watch(ctx, key, opts)
	if err != nil {
		cancel()
	}
	return w, err
}
