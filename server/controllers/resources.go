package controllers

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// discoveryQuiet is how long discovery must stay unchanged before it is read: it changes several times until a
	// CustomResourceDefinition is established.
	discoveryQuiet = 500 * time.Millisecond
	// discoveryLatest is how long after a change it is read at the latest: some cluster has a definition that never stays unchanged, such
	// as one that two operators keep overwriting, and the objects of others must be collected and counted.
	discoveryLatest = 2 * time.Second
	// resourcesPeriod is how often discovery is read without a change. Upstream, which is not notified of changes, reads it every
	// 30 seconds.
	resourcesPeriod = 5 * time.Minute
)

// resourceChanges notifies controllers that the set of resources may have changed. Upstream's manager of discovery tells one alone, the last
// that asked, so all calls of run share it.
type resourceChanges struct {
	mu       sync.Mutex
	watchers []chan struct{}
}

// subscribe returns a channel that gets a value after a change until ctx ends. It holds one.
func (r *resourceChanges) subscribe(ctx context.Context) <-chan struct{} {
	changed := make(chan struct{}, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, changed)
	context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.watchers = slices.DeleteFunc(r.watchers, func(one chan struct{}) bool { return one == changed })
	})
	return changed
}

func (r *resourceChanges) notify() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, watcher := range r.watchers {
		select {
		case watcher <- struct{}{}:
		default: // a notification is pending already
		}
	}
}

// again calls run, which runs until its context ends, and restarts it after each change, once changes have stopped or the first of them is
// discoveryLatest ago. It returns when ctx ends.
//
// Upstream's Sync loops read discovery when they start and then periodically; they offer no other way to make them read
// it at once. What they watch already is in the controllers, not in these loops, and goes on.
func again(ctx context.Context, changed <-chan struct{}, run func(context.Context)) {
	for ctx.Err() == nil {
		var settled, latest <-chan time.Time
		runCtx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() { run(runCtx) })
		for wait := true; wait; {
			select {
			case <-ctx.Done():
				wait = false
			case <-changed:
				settled = time.After(discoveryQuiet)
				if latest == nil {
					latest = time.After(discoveryLatest)
				}
			case <-settled:
				wait = false
			case <-latest:
				wait = false
			}
		}
		cancel()
		running.Wait()
	}
}
