package informer

import (
	"context"
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
