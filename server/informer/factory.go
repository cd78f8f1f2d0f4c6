package informer

import (
	"context"
	"maps"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

// Factory makes shared informers that a Feed feeds.
type Factory struct {
	Groups
	// Source returns how the objects of a resource are read; nil if they can't be read from the store. It must be set before the first start.
	Source func(schema.GroupVersionResource) Source

	made      informers.SharedInformerFactory // has the clients and the names, and starts nothing
	feed      *Feed
	transform cache.TransformFunc

	mu     sync.Mutex
	byType map[reflect.Type]*Informer
	began  map[reflect.Type]bool // which have been started
}

// NewFactory returns a factory of informers that a feed feeds, and of those that made makes for what has no source. transform is that of all.
func NewFactory(made informers.SharedInformerFactory, feed *Feed, transform cache.TransformFunc) *Factory {
	f := &Factory{made: made, feed: feed, transform: transform, byType: map[reflect.Type]*Informer{}, began: map[reflect.Type]bool{}}
	f.Groups = GroupsOf(f)
	return f
}

// InformerFor returns the informer for the object's type.
func (f *Factory) InformerFor(object runtime.Object, create internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return f.fed(reflect.TypeOf(object), f.made.InformerFor(object, create))
}

// ForResource returns the informer for the resource. It returns an error if the client has no such type.
func (f *Factory) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	informer, err := f.made.ForResource(resource)
	if err != nil {
		return nil, err
	}
	return generic{informer, f.fed(typeOf()[resource], informer.Informer())}, nil
}

type generic struct {
	informers.GenericInformer
	fed *Informer
}

// Informer returns the informer that the feed feeds.
func (g generic) Informer() cache.SharedIndexInformer { return g.fed }

func (f *Factory) fed(object reflect.Type, made cache.SharedIndexInformer) *Informer {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, ok := f.byType[object]
	if !ok {
		resource := resourceOf()[object]
		found = New(made, Options{
			Name: resource.Resource, Feed: f.feed, Transform: f.transform, Source: func() Source { return f.Source(resource) },
		})
		f.byType[object] = found
	}
	return found
}

// InformerName returns the name of the informers in metrics.
func (f *Factory) InformerName() *cache.InformerName { return f.made.InformerName() }

// Start starts the informers that were not started before. They stop when stop is closed.
func (f *Factory) Start(stop <-chan struct{}) {
	ctx, cancel := context.WithCancel(context.Background())
	if !f.start(ctx) {
		cancel()
		return
	}
	go func() {
		<-stop
		cancel()
	}()
}

// StartWithContext starts the informers that were not started before. They stop when ctx ends.
func (f *Factory) StartWithContext(ctx context.Context) { f.start(ctx) }

// start starts the informers that were not started before, and reports whether there are any.
func (f *Factory) start(ctx context.Context) bool {
	f.mu.Lock()
	fresh := maps.Clone(f.byType)
	maps.DeleteFunc(fresh, func(object reflect.Type, _ *Informer) bool { return f.began[object] })
	for object := range fresh {
		f.began[object] = true
	}
	f.mu.Unlock()
	for _, informer := range fresh {
		informer.Start(ctx)
	}
	return len(fresh) > 0
}

// Shutdown returns when all informers have stopped.
func (f *Factory) Shutdown() {
	for _, informer := range f.started() {
		informer.Wait()
	}
	f.made.Shutdown()
}

func (f *Factory) started() map[reflect.Type]*Informer {
	f.mu.Lock()
	defer f.mu.Unlock()
	started := maps.Clone(f.byType)
	maps.DeleteFunc(started, func(object reflect.Type, _ *Informer) bool { return !f.began[object] })
	return started
}

// WaitForCacheSync waits for the informers that were started, until stop is closed.
func (f *Factory) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	synced := map[reflect.Type]bool{}
	for object, informer := range f.started() {
		select {
		case <-informer.synced.done:
		case <-stop:
		}
		synced[object] = informer.HasSynced()
	}
	return synced
}

// WaitForCacheSyncWithContext waits for the informers that were started, until ctx ends.
func (f *Factory) WaitForCacheSyncWithContext(ctx context.Context) cache.SyncResult {
	result := cache.SyncResult{Synced: f.WaitForCacheSync(ctx.Done())}
	for _, synced := range result.Synced {
		if !synced {
			result.Err = context.Cause(ctx)
		}
	}
	return result
}

// ResourceOf returns the resource of a type that the client has.
func ResourceOf(object reflect.Type) (schema.GroupVersionResource, bool) {
	resource, ok := resourceOf()[object]
	return resource, ok
}

// resourceOf returns the resources of the client's types, typeOf the types of its resources.
var (
	resourceOf = sync.OnceValue(func() map[reflect.Type]schema.GroupVersionResource {
		resources := map[reflect.Type]schema.GroupVersionResource{}
		for resource, object := range typeOf() {
			resources[object] = resource
		}
		return resources
	})
	typeOf = sync.OnceValue(func() map[schema.GroupVersionResource]reflect.Type {
		types := map[schema.GroupVersionResource]reflect.Type{}
		for kind, object := range scheme.Scheme.AllKnownTypes() {
			resource, _ := meta.UnsafeGuessKindToResource(kind)
			types[resource] = reflect.PointerTo(object)
		}
		return types
	})
)
