package lazyinformer

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Adding is an informer to which Add adds handlers.
type Adding struct {
	cache.SharedIndexInformer
	Add func(cache.ResourceEventHandler, cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error)
}

// AddEventHandler adds a handler.
func (a Adding) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return a.Add(h, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod adds a handler.
func (a Adding) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return a.Add(h, cache.HandlerOptions{ResyncPeriod: &period})
}

// AddEventHandlerWithOptions adds a handler.
func (a Adding) AddEventHandlerWithOptions(h cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return a.Add(h, options)
}

// add adds a handler. Upstream's informer gets it when it runs: it reserves memory for a thousand events for each.
func (i *Informer) add(h cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.awake || i.ctx != nil && i.ctx.Err() != nil {
		return i.SharedIndexInformer.AddEventHandlerWithOptions(h, options)
	}
	r := &registration{handler: h, options: options, synced: newSignal("handler of " + i.resource.Resource)}
	i.asleep = append(i.asleep, r)
	if i.ctx != nil {
		r.synced.give()
	}
	return r, nil
}

// RemoveEventHandler removes a handler.
func (i *Informer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	r, ok := handle.(*registration)
	if !ok {
		return i.SharedIndexInformer.RemoveEventHandler(handle)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.registered != nil {
		return i.SharedIndexInformer.RemoveEventHandler(r.registered)
	}
	i.asleep = slices.DeleteFunc(i.asleep, func(other *registration) bool { return other == r })
	return nil
}

// signal is given once.
type signal struct {
	name string
	once *sync.Once
	done chan struct{}
}

func newSignal(name string) signal { return signal{name, &sync.Once{}, make(chan struct{})} }

func (s signal) give() { s.once.Do(func() { close(s.done) }) }

func (s signal) given() bool { return cache.IsDone(s) }

// follow gives the signal when the other is done. It returns false if ctx ends first.
func (s signal) follow(ctx context.Context, other cache.DoneChecker) bool {
	select {
	case <-other.Done():
		s.give()
		return true
	case <-ctx.Done():
		return false
	}
}

// Name implements cache.DoneChecker.
func (s signal) Name() string { return s.name }

// Done implements cache.DoneChecker.
func (s signal) Done() <-chan struct{} { return s.done }
