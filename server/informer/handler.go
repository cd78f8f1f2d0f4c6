package informer

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// notification is one call of a handler.
type notification struct {
	does          doing
	before, after any
	initial       bool // the object is of the initial list
}

type doing int

const (
	adds doing = iota
	updates
	deletes
	syncs // no call: the handler has got the initial list
)

// handler is a registered handler. It gets notifications one at a time, in their order, from a goroutine that lives only while there are some.
type handler struct {
	informer *Informer
	handler  cache.ResourceEventHandler
	options  cache.HandlerOptions
	synced   signal
	removed  atomic.Bool
	ended    chan struct{} // closed when it is removed and no longer called

	// registered is that of the informer that reads by requests, nil if that does not run.
	registered cache.ResourceEventHandlerRegistration

	mu     sync.Mutex
	queue  []notification
	called bool // a goroutine takes from the queue
	timer  *time.Timer
}

func newHandler(i *Informer, h cache.ResourceEventHandler, options cache.HandlerOptions) *handler {
	return &handler{informer: i, handler: h, options: options, synced: newSignal("handler of " + i.name), ended: make(chan struct{})}
}

// HasSynced reports whether the handler has got the objects of the collection.
func (h *handler) HasSynced() bool { return h.synced.given() }

// HasSyncedChecker is done when the handler has got the objects of the collection.
func (h *handler) HasSyncedChecker() cache.DoneChecker { return h.synced }

// ShutdownChan is closed when the handler has been removed and is no longer called. cache.ShutDownEventHandler waits for it.
func (h *handler) ShutdownChan() <-chan struct{} { return h.ended }

// queued queues a notification. The informer's mu is held.
func (h *handler) queued(n notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.removed.Load():
	case n.does == syncs && !h.called:
		h.synced.give()
	default:
		h.queue = append(h.queue, n)
		if !h.called {
			h.called = true
			h.informer.running.Go(h.run)
		}
	}
}

// run calls the handler until its queue is empty.
func (h *handler) run() {
	for batch := h.take(); batch != nil; batch = h.take() {
		for n := range batch {
			if h.removed.Load() {
				break
			}
			h.call(batch[n])
			batch[n] = notification{} // its objects can be garbage-collected
		}
	}
}

// take returns what is queued. If that is nothing, the handler is no longer called.
func (h *handler) take() []notification {
	h.mu.Lock()
	defer h.mu.Unlock()
	batch := h.queue
	h.queue = nil
	if batch == nil || h.removed.Load() {
		h.called = false
		if h.removed.Load() {
			close(h.ended)
		}
		return nil
	}
	return batch
}

// call calls the handler. Like upstream, a handler that panics ends the process, unless that is turned off; then it gets the next notification.
func (h *handler) call(n notification) {
	defer utilruntime.HandleCrashWithContext(klog.NewContext(context.Background(), ptr.Deref(h.options.Logger, klog.Background())))
	switch n.does {
	case adds:
		h.handler.OnAdd(n.after, n.initial)
	case updates:
		h.handler.OnUpdate(n.before, n.after)
	case deletes:
		h.handler.OnDelete(n.before)
	case syncs:
		h.synced.give()
	}
}

// remove ends the handler. What is queued is dropped. The informer's mu is held.
func (h *handler) remove() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.removed.Swap(true) {
		return
	}
	h.queue = nil
	if h.timer != nil {
		h.timer.Stop()
	}
	if !h.called {
		close(h.ended)
	}
}

// minResync is upstream's shortest period.
const minResync = time.Second

// resyncs lets the handler get all objects at its period. Like upstream, an informer without a period has no handlers with one. The informer's
// mu is held.
func (h *handler) resyncs() {
	period := h.informer.resync
	if period == 0 {
		return
	}
	if h.options.ResyncPeriod != nil {
		if period = *h.options.ResyncPeriod; period <= 0 {
			return
		}
	}
	period = max(period, minResync)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(period, func() {
		h.informer.mu.Lock()
		defer h.informer.mu.Unlock()
		if h.removed.Load() {
			return
		}
		for _, object := range h.informer.GetIndexer().List() {
			h.queued(notification{does: updates, before: object, after: object})
		}
		h.timer.Reset(period)
	})
}

// shallow returns a copy of an object that shares everything that it refers to.
func shallow(object runtime.Object) runtime.Object {
	v := reflect.ValueOf(object)
	if _, dynamic := object.(runtime.Unstructured); dynamic || v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return object.DeepCopyObject()
	}
	copied := reflect.New(v.Elem().Type())
	copied.Elem().Set(v.Elem())
	return copied.Interface().(runtime.Object)
}
