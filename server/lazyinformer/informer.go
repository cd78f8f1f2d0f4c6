// Package lazyinformer has informers that do not run while there is nothing to inform about. Most resources have no objects in most
// clusters; an informer that runs takes some ten goroutines, and two for each handler.
package lazyinformer

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// Sleep has wake called in a goroutine, once, when a resource may have objects, and returns true. The caller may cancel that. If
// the resource may have objects already, Sleep returns false, and wake may still be called.
type Sleep func(ctx context.Context, resource schema.GroupVersionResource, wake func()) (cancel func(), asleep bool)

// Informer is an informer that sleeps until its resource has objects. Until then it has synced, and has no objects.
type Informer struct {
	Adding // to the informer that runs when this is awake

	resource schema.GroupVersionResource
	sleep    Sleep
	synced   signal
	running  sync.WaitGroup

	mu     sync.Mutex
	ctx    context.Context // nil until it is started
	awake  bool
	asleep []*registration // the handlers that were added before it woke up
}

// New returns a lazy informer of a resource. The given one must not have been started.
func New(informer cache.SharedIndexInformer, resource schema.GroupVersionResource, sleep Sleep) *Informer {
	i := &Informer{resource: resource, sleep: sleep, synced: newSignal("informer of " + resource.Resource)}
	i.Adding = Adding{informer, i.add}
	return i
}

// Start starts the informer, which stops when ctx ends. It does nothing if it was started before.
func (i *Informer) Start(ctx context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ctx != nil {
		return
	}
	i.ctx = ctx
	cancel, asleep := i.sleep(ctx, i.resource, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.wake()
	})
	if !asleep {
		i.wake()
		return
	}
	context.AfterFunc(ctx, cancel)
	i.synced.give()
	for _, r := range i.asleep {
		r.synced.give()
	}
}

// wake runs the informer, with the handlers that it has. i.mu is held.
func (i *Informer) wake() {
	if i.awake || i.ctx.Err() != nil {
		return
	}
	i.awake = true
	ctx, handlers := i.ctx, i.asleep
	for _, r := range handlers {
		r.registered, _ = i.SharedIndexInformer.AddEventHandlerWithOptions(r.handler, r.options) // fails only if it has stopped
	}
	i.asleep = nil
	i.running.Go(func() { i.SharedIndexInformer.RunWithContext(ctx) })
	i.running.Go(func() {
		if i.synced.follow(ctx, i.SharedIndexInformer.HasSyncedChecker()) {
			for _, r := range handlers {
				r.synced.follow(ctx, r.registered.HasSyncedChecker())
			}
		}
	})
}

// RunWithContext runs the informer until ctx ends.
func (i *Informer) RunWithContext(ctx context.Context) {
	i.Start(ctx)
	i.wait()
}

// Run runs the informer until stop is closed.
func (i *Informer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

// wait returns when a started informer has stopped.
func (i *Informer) wait() {
	i.mu.Lock()
	ctx := i.ctx
	i.mu.Unlock()
	<-ctx.Done()
	i.mu.Lock()
	i.awake = true // so that it does not wake up any more
	i.mu.Unlock()
	i.running.Wait()
}

// HasSynced reports whether the informer has the objects of its collection.
func (i *Informer) HasSynced() bool { return i.synced.given() }

// HasSyncedChecker is done when the informer has the objects of its collection.
func (i *Informer) HasSyncedChecker() cache.DoneChecker { return i.synced }

// LastSyncResourceVersion wakes the informer, since the version is that of its watch.
func (i *Informer) LastSyncResourceVersion() string {
	i.mu.Lock()
	if i.ctx != nil {
		i.wake()
	}
	i.mu.Unlock()
	return i.SharedIndexInformer.LastSyncResourceVersion()
}

// GetController returns a controller that does not run.
func (i *Informer) GetController() cache.Controller { return controller{i} }

type controller struct{ *Informer }

// Run does nothing, like that of upstream's informers.
func (controller) Run(<-chan struct{}) {}

// RunWithContext does nothing.
func (controller) RunWithContext(context.Context) {}

// registration is a handler that was added while the informer did not run.
type registration struct {
	handler    cache.ResourceEventHandler
	options    cache.HandlerOptions
	synced     signal
	registered cache.ResourceEventHandlerRegistration // once the informer runs
}

// HasSynced reports whether the handler has seen the objects of the collection.
func (r *registration) HasSynced() bool { return r.synced.given() }

// HasSyncedChecker is done when the handler has seen the objects of the collection.
func (r *registration) HasSyncedChecker() cache.DoneChecker { return r.synced }
