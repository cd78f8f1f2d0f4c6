package crd

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"

	"github.com/sqube/sqube/server/decorate"
)

// closeWatchesOnDestroy makes the watches of a storage end when it is destroyed. Otherwise they would continue with the old
// schema and conversion of a custom resource, or wait for events that can't come. Clients then watch again and get the new
// schema, or an error that the resource is gone.
//
// In kube-apiserver the watch cache ends the watches: upstream's handler destroys the storages of an old definition a few
// seconds after a change.
func closeWatchesOnDestroy(next generic.StorageDecorator) generic.StorageDecorator {
	return decorate.Storage(next, func(_ schema.GroupResource, s storage.Interface, destroy factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error) {
		open, closeWatches := context.WithCancel(context.Background())
		return watchCloser{s, open}, func() {
			closeWatches()
			destroy()
		}, nil
	})
}

// watchCloser is a storage whose watches end when open does.
type watchCloser struct {
	storage.Interface
	open context.Context
}

// Unwrap returns the storage itself.
func (c watchCloser) Unwrap() storage.Interface { return c.Interface }

func (c watchCloser) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.open, cancel)
	context.AfterFunc(ctx, func() { stop() })
	w, err := c.Interface.Watch(ctx, key, opts)
	if err != nil {
		cancel()
	}
	return w, err
}
