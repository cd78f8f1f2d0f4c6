package controllers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

const (
	// settle is how long CustomResourceDefinitions must stay as they are before discovery is read: one is written
	// several times until it is established, and discovery follows a moment later.
	settle = 500 * time.Millisecond
	// confirm is when discovery is read once more, should it have been slower than that.
	confirm = 3 * time.Second
	// resourcesPeriod is when discovery is read though no definition has changed. Upstream, which does not watch them,
	// does so every 30 seconds.
	resourcesPeriod = 5 * time.Minute
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// resourceChanges tells controllers that the set of resources may have changed.
type resourceChanges struct {
	mu       sync.Mutex
	watchers []chan struct{}
}

// subscribe returns a channel that gets a value after a change. It holds one.
func (r *resourceChanges) subscribe() <-chan struct{} {
	changed := make(chan struct{}, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, changed)
	return changed
}

func (r *resourceChanges) notify() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, watcher := range r.watchers {
		select {
		case watcher <- struct{}{}:
		default: // it has one to read already
		}
	}
}

// watch notifies on every change of a CustomResourceDefinition until ctx ends. It shares the garbage collector's
// informer for them.
func (r *resourceChanges) watch(ctx context.Context, m *monitors) {
	generic, err := m.ForResource(definitions)
	if err == nil {
		_, err = generic.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { r.notify() },
			UpdateFunc: func(any, any) { r.notify() },
			DeleteFunc: func(any) { r.notify() },
		})
	}
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Cannot watch custom resource definitions, reading discovery periodically",
			"period", resourcesPeriod)
		return
	}
	generic.Informer().GetController().RunWithContext(ctx)
}

// again calls run, which runs until its context ends, and calls it anew after each change, first when things have
// settled and then once more to confirm. It returns when ctx ends.
//
// Upstream's Sync loops read discovery when they start and then periodically; they offer no other way to make them read
// it now.
func again(ctx context.Context, changed <-chan struct{}, run func(context.Context)) {
	var settled, confirmed <-chan time.Time
	for ctx.Err() == nil {
		runCtx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { run(runCtx) })
		for wait := true; wait; {
			select {
			case <-ctx.Done():
				wait = false
			case <-changed:
				settled, confirmed = time.After(settle), nil
			case <-settled:
				settled, confirmed = nil, time.After(confirm)
				wait = false
			case <-confirmed:
				confirmed = nil
				wait = false
			}
		}
		cancel()
		running.Wait()
	}
}
