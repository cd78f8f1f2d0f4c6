// Package decorate changes the configuration that a generic.StorageDecorator is called with, and the storage that it returns.
package decorate

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// Wrapper takes the storage of a resource and the function that destroys it, and returns replacements for both.
type Wrapper func(schema.GroupResource, storage.Interface, factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error)

// Config returns a decorator that calls next with a changed copy of the configuration.
func Config(next generic.StorageDecorator, change func(*storagebackend.ConfigForResource)) generic.StorageDecorator {
	return both(next, change, func(_ schema.GroupResource, s storage.Interface, destroy factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error) {
		return s, destroy, nil
	})
}

// Storage returns a decorator that wraps the storages of next.
func Storage(next generic.StorageDecorator, wrap Wrapper) generic.StorageDecorator {
	return both(next, func(*storagebackend.ConfigForResource) {}, wrap)
}

func both(next generic.StorageDecorator, change func(*storagebackend.ConfigForResource), wrap Wrapper) generic.StorageDecorator {
	return func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		changed := *config
		change(&changed)
		made, destroy, err := next(&changed, prefix, key, newObject, newList, attributes, triggers, indexers)
		if err != nil {
			return nil, nil, err
		}
		return wrap(changed.GroupResource, made, destroy)
	}
}
