package crd

import (
	"context"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
)

// watches ends those of a custom resource whose definition changed or is gone: they would go on with the old schema and
// conversion, or wait for what can't come. Clients watch again and get the new, or learn that there is nothing.
//
// In kube-apiserver the watch cache does this when its storage is destroyed, which upstream's handler does for the
// storages of an old definition, some seconds after the change. Destruction is the signal here, too.
type watches struct {
	mu   sync.Mutex
	open map[schema.GroupResource]*epoch
}

// epoch is the time between two changes of a definition.
type epoch struct {
	context.Context
	end context.CancelFunc
}

func newWatches() *watches { return &watches{open: map[schema.GroupResource]*epoch{}} }

// serve passes a watch on, with a context that ends when the definition of the resource changes. The resource must be
// defined, or names that clients make up would be remembered.
func (w *watches) serve(next http.Handler, rw http.ResponseWriter, r *http.Request, resource schema.GroupResource) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(w.now(resource), cancel)()
	next.ServeHTTP(rw, r.WithContext(ctx))
}

func (w *watches) now(resource schema.GroupResource) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[resource] == nil {
		ctx, end := context.WithCancel(context.Background())
		w.open[resource] = &epoch{ctx, end}
	}
	return w.open[resource]
}

// end ends the watches that there are. Those that begin later are of the changed definition.
func (w *watches) end(resource schema.GroupResource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.open[resource]; e != nil {
		e.end()
		delete(w.open, resource)
	}
}

// endedBy decorates storages so that the destruction of one ends the watches of its resource.
func (w *watches) endedBy(decorate generic.StorageDecorator) generic.StorageDecorator {
	return func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		s, destroy, err := decorate(config, prefix, key, newObject, newList, attributes, triggers, indexers)
		if err != nil {
			return nil, nil, err
		}
		return s, func() {
			w.end(config.GroupResource)
			destroy()
		}, nil
	}
}
