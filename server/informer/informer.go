// Package informer has client-go's shared informers, fed from the store of the same process: without requests, watches, and a goroutine for
// each. One goroutine, that of a Feed, tells all informers of a server of the changes, in the order of their revisions. A handler has a
// goroutine only while it has something to do, so one that takes long holds up no other.
//
//	hub of the store ─► Subscription ─► Feed ─► indexer of each Informer ─► queue of each handler
//
// What can't be read from the store, such as the objects of an aggregated API, an informer reads by requests, as client-go's.
package informer

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/sqlstore"
)

// Source reads the objects of a resource from the store. If it has a method Destroy, that is called when the informer stops.
type Source interface {
	// Resource is the resource as the store names it.
	Resource() sqlstore.Resource
	// Terms are conditions that the record of every object fulfills that is not left out.
	Terms() []sqlstore.Term
	// Object returns the object of a record, or nil if it is left out. Nothing else refers to it.
	Object(context.Context, *sqlstore.Record) (runtime.Object, error)
}

// Informer is a cache.SharedIndexInformer that a Feed feeds.
type Informer struct {
	Adding // made, which has the indexer, and runs if there is no source

	name    string
	feed    *Feed
	find    func() Source
	resync  time.Duration
	synced  signal
	running sync.WaitGroup // handlers that are called

	mu        sync.Mutex
	ctx       context.Context // nil until it is started
	source    Source          // nil until it is started, and if made runs
	stopped   bool
	transform cache.TransformFunc
	onFailure cache.WatchErrorHandlerWithContext
	handlers  []*handler
	at        int64 // the indexer has the changes up to this revision
	behind    bool  // the indexer misses changes, and must be filled again
	pause     time.Duration
}

// Options describe an Informer.
type Options struct {
	// Name is that of the resource.
	Name string
	// Feed feeds it, from the source that Source returns when it starts. Without a source, the informer reads by requests.
	Feed   *Feed
	Source func() Source
	// Transform is its first transform; nil for none.
	Transform cache.TransformFunc
	// Resync is how often handlers get all objects again; 0 for never.
	Resync time.Duration
}

// New returns an informer with the indexer of made, which must not have been started.
func New(made cache.SharedIndexInformer, o Options) *Informer {
	i := &Informer{name: o.Name, feed: o.Feed, find: o.Source, resync: o.Resync, transform: o.Transform, synced: newSignal("informer of " + o.Name)}
	i.Adding = Adding{made, i.add}
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
	if i.source = i.find(); i.source == nil {
		i.runMade()
		return
	}
	context.AfterFunc(ctx, i.stop)
	i.behind = true // until its collection is read
	for _, h := range i.handlers {
		h.resyncs()
	}
	i.feed.add(i)
}

// stop stops the informer, but does not wait for handlers that are running.
func (i *Informer) stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped {
		return
	}
	i.stopped = true
	for _, h := range i.handlers {
		h.remove()
		h.synced.give() // it gets no more, and upstream's Node authorizer waits for it without an end
	}
	if i.source != nil {
		i.feed.remove(i)
	}
	if kept, ok := i.source.(interface{ Destroy() }); ok {
		kept.Destroy()
	}
}

// Wait returns when the informer, which was started, has stopped, and its handlers have returned.
func (i *Informer) Wait() {
	i.mu.Lock()
	ctx := i.ctx
	i.mu.Unlock()
	<-ctx.Done()
	i.stop()
	i.running.Wait()
}

// RunWithContext runs the informer until ctx ends.
func (i *Informer) RunWithContext(ctx context.Context) {
	i.Start(ctx)
	i.Wait()
}

// Run runs the informer until stop is closed.
func (i *Informer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

// runMade runs the informer that reads by requests, with the handlers that were added before. i.mu is held.
func (i *Informer) runMade() {
	ctx, made, handlers := i.ctx, i.SharedIndexInformer, i.handlers
	if i.transform != nil {
		_ = made.SetTransform(i.transform) // fails only if it was started
	}
	if i.onFailure != nil {
		_ = made.SetWatchErrorHandlerWithContext(i.onFailure)
	}
	for _, h := range handlers {
		h.registered, _ = made.AddEventHandlerWithOptions(h.handler, h.options) // fails only if it has stopped
	}
	i.running.Go(func() { made.RunWithContext(ctx) })
	i.running.Go(func() {
		if i.synced.follow(ctx, made.HasSyncedChecker()) {
			for _, h := range handlers {
				h.synced.follow(ctx, h.registered.HasSyncedChecker())
			}
		}
	})
}

// replace makes the indexer contain exactly the objects, which are those of a revision.
func (i *Informer) replace(objects []listed, revision int64) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	indexer, initial := i.GetIndexer(), !i.synced.given()
	present := map[string]bool{}
	for _, o := range objects {
		present[o.key] = true
	}
	for _, key := range indexer.ListKeys() {
		if present[key] {
			continue
		}
		before, _, _ := indexer.GetByKey(key)
		last := cache.DeletedFinalStateUnknown{Key: key, Obj: before}
		if err := indexer.Delete(last); err != nil {
			return err
		}
		i.tell(notification{does: deletes, before: last})
	}
	for _, o := range objects {
		before, known, err := indexer.GetByKey(o.key)
		if err == nil && (!known || before != o.object) {
			err = indexer.Update(o.object)
		}
		switch {
		case err != nil:
			return err
		case !known:
			i.tell(notification{does: adds, after: o.object, initial: initial})
		case before != o.object:
			i.tell(notification{does: updates, before: before, after: o.object})
		}
	}
	indexer.Bookmark(strconv.FormatInt(revision, 10))
	i.at, i.behind, i.pause = revision, false, 0
	if initial {
		i.synced.give()
		i.tell(notification{does: syncs})
	}
	return nil
}

// apply applies a change to the indexer.
func (i *Informer) apply(c *sqlstore.Change, deleted bool) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stopped || i.behind || c.Record.Revision <= i.at {
		return nil
	}
	indexer := i.GetIndexer()
	before, known, err := indexer.GetByKey(c.Record.Key)
	var after any // nil for none
	if err == nil && !deleted {
		after, err = i.read(&c.Record)
	}
	switch {
	case err != nil:
	case after != nil:
		if err = indexer.Update(after); err == nil && known {
			i.tell(notification{does: updates, before: before, after: after})
		} else if err == nil {
			i.tell(notification{does: adds, after: after})
		}
	case known:
		gone := last(before, c.Record.Revision)
		if err = indexer.Delete(gone); err == nil {
			i.tell(notification{does: deletes, before: gone})
		}
	}
	if err == nil {
		i.at = c.Record.Revision
	}
	return err
}

// read returns the object of a record as the indexer has it; nil if it is left out.
func (i *Informer) read(r *sqlstore.Record) (any, error) {
	object, err := i.source.Object(i.ctx, r)
	if err != nil || object == nil {
		return nil, err
	}
	if i.transform == nil {
		return object, nil
	}
	return i.transform(object)
}

// last returns the last state of an object that was deleted at a revision.
func last(object any, revision int64) any {
	o, ok := object.(runtime.Object)
	if !ok {
		return object
	}
	copied := shallow(o)
	if m, err := meta.Accessor(copied); err == nil {
		m.SetResourceVersion(strconv.FormatInt(revision, 10))
	}
	return copied
}

// tell queues a notification for each handler. i.mu is held.
func (i *Informer) tell(n notification) {
	for _, h := range i.handlers {
		h.queued(n)
	}
}

// add adds a handler.
func (i *Informer) add(h cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ctx != nil && i.source == nil {
		return i.SharedIndexInformer.AddEventHandlerWithOptions(h, options)
	}
	if i.stopped || i.ctx != nil && i.ctx.Err() != nil {
		return nil, fmt.Errorf("the handler was not added: the informer of %s has stopped", i.name)
	}
	made := newHandler(i, h, options)
	i.handlers = append(i.handlers, made)
	if i.ctx == nil {
		return made, nil
	}
	for _, object := range i.GetIndexer().List() {
		made.queued(notification{does: adds, after: object, initial: true})
	}
	if i.synced.given() {
		made.queued(notification{does: syncs})
	}
	made.resyncs()
	return made, nil
}

// RemoveEventHandler removes a handler.
func (i *Informer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	h, ok := handle.(*handler)
	if !ok || h.registered != nil {
		if ok {
			handle = h.registered
		}
		return i.SharedIndexInformer.RemoveEventHandler(handle)
	}
	if at := slices.Index(i.handlers, h); at >= 0 {
		i.handlers = slices.Delete(i.handlers, at, at+1)
		h.remove()
	}
	return nil
}

// SetTransform sets what objects pass before they are stored.
func (i *Informer) SetTransform(transform cache.TransformFunc) error {
	return i.set(func() { i.transform = transform })
}

// SetWatchErrorHandler sets what is called when the objects can't be read.
func (i *Informer) SetWatchErrorHandler(handle cache.WatchErrorHandler) error {
	return i.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { handle(r, err) })
}

// SetWatchErrorHandlerWithContext sets what is called when the objects can't be read.
func (i *Informer) SetWatchErrorHandlerWithContext(handle cache.WatchErrorHandlerWithContext) error {
	return i.set(func() { i.onFailure = handle })
}

func (i *Informer) set(value func()) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ctx != nil {
		return fmt.Errorf("the informer of %s has started already", i.name)
	}
	value()
	return nil
}

// HasSynced reports whether the informer has the objects of its collection.
func (i *Informer) HasSynced() bool { return i.synced.given() }

// HasSyncedChecker is done when the informer has the objects of its collection.
func (i *Informer) HasSyncedChecker() cache.DoneChecker { return i.synced }

// LastSyncResourceVersion returns the revision of the collection that the indexer has, "" if it has none yet.
func (i *Informer) LastSyncResourceVersion() string {
	i.mu.Lock()
	source, at, behind := i.source, i.at, i.behind
	i.mu.Unlock()
	switch {
	case source == nil:
		return i.SharedIndexInformer.LastSyncResourceVersion()
	case at == 0:
		return ""
	case !behind:
		at = max(at, i.feed.reached())
	}
	return strconv.FormatInt(at, 10)
}

// IsStopped reports whether the informer has stopped.
func (i *Informer) IsStopped() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ctx != nil && i.source == nil {
		return i.SharedIndexInformer.IsStopped()
	}
	return i.stopped
}

// GetController returns a controller that does not run.
func (i *Informer) GetController() cache.Controller { return controller{i} }

type controller struct{ *Informer }

// Run does nothing, like that of upstream's informers.
func (controller) Run(<-chan struct{}) {}

// RunWithContext does nothing.
func (controller) RunWithContext(context.Context) {}
