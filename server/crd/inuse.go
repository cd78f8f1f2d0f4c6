package crd

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
)

// inUse gives upstream's handler whole definitions on first use, and takes them back when they have not been used for a while. The
// handler keeps what it has made of a definition (schemas, CEL programs, converters, storages), until its informer no longer lists
// it: that is several hundred KiB.
type inUse struct {
	informers.CustomResourceDefinitionInformer // without schemas
	whole                                      wholeDefinitions
	handler                                    cache.ResourceEventHandler // upstream's
	forgotten                                  func(name string)          // called for what is taken back
	reading                                    singleflight.Group

	// entering is held by requests while they begin, and by forget. So none begins with what is about to be taken back.
	entering sync.RWMutex
	mu       sync.Mutex
	byName   map[string]*usedDefinition
	leaving  map[string]bool // not listed, so that the handler forgets them
}

// usedDefinition is a definition that upstream's handler has, or may get.
type usedDefinition struct {
	slim, whole definition // of the same state; nil until needed
	requests    int        // that are running, including watches
	last        time.Time  // when the last one ended
}

// begin records that a request uses a definition, until end is called.
func (u *inUse) begin(name string) (end func()) {
	if _, err := u.CustomResourceDefinitionInformer.Lister().Get(name); err != nil {
		return func() {}
	}
	u.entering.RLock()
	defer u.entering.RUnlock()
	u.mu.Lock()
	defer u.mu.Unlock()
	used := u.get(name)
	used.requests++
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		used.requests--
		used.last = time.Now()
	}
}

// get returns the entry of a definition. u.mu is held.
func (u *inUse) get(name string) *usedDefinition {
	used := u.byName[name]
	if used == nil {
		used = &usedDefinition{last: time.Now()}
		u.byName[name] = used
	}
	return used
}

// count returns how many definitions upstream's handler has schemas of.
func (u *inUse) count() (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, used := range u.byName {
		if used.whole != nil {
			n++
		}
	}
	return n
}

// forget takes back what has not been used for that long.
func (u *inUse) forget(unused time.Duration) {
	u.entering.Lock()
	defer u.entering.Unlock()
	u.mu.Lock()
	u.leaving = map[string]bool{}
	for name, used := range u.byName {
		if used.requests == 0 && time.Since(used.last) >= unused {
			u.leaving[name] = true
			delete(u.byName, name)
		}
	}
	leaving := u.leaving
	u.mu.Unlock()
	for name := range leaving {
		u.forgotten(name)
	}
	if len(leaving) > 0 {
		u.handler.OnDelete(nil) // compares what it has with the list
	}
	u.mu.Lock()
	u.leaving = nil
	u.mu.Unlock()
}

// run takes back what is not used, until ctx ends.
func (u *inUse) run(ctx context.Context, unused time.Duration) {
	ticker := time.NewTicker(max(unused/5, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			u.forget(unused)
		case <-ctx.Done():
			return
		}
	}
}

// current returns the definition as upstream's handler should see it: with the schemas, if the handler has them and they are
// unchanged.
func (u *inUse) current(slim definition) definition {
	u.mu.Lock()
	defer u.mu.Unlock()
	used := u.byName[slim.Name]
	if used == nil || !used.update(slim) {
		return slim
	}
	return used.whole
}

// update makes whole that of the same state as slim. It returns false if its schemas may be outdated.
func (d *usedDefinition) update(slim definition) bool {
	if d.whole == nil || d.whole.UID != slim.UID || d.whole.Generation != slim.Generation {
		return false
	}
	if d.slim != slim {
		updated := *slim
		updated.Spec = d.whole.Spec
		d.slim, d.whole = slim, &updated
	}
	return true
}

// Lister implements informers.CustomResourceDefinitionInformer.
func (u *inUse) Lister() listers.CustomResourceDefinitionLister {
	return inUseLister{seenLister{u.CustomResourceDefinitionInformer.Lister(), u.use}, u}
}

// use returns a definition with its schemas.
func (u *inUse) use(slim definition) (definition, error) { return u.await(context.Background(), slim) }

// await is use for a request, whose client may leave. Requests that come while the definition is read get the same: decoding the schemas of
// a large one takes tens of milliseconds.
func (u *inUse) await(ctx context.Context, slim definition) (definition, error) {
	if d := u.current(slim); d != slim {
		return d, nil
	}
	// Who has seen a newer state must not get what was read before.
	state := slim.Name + " " + string(slim.UID) + " " + slim.ResourceVersion
	reading := u.reading.DoChan(state, func() (any, error) { return u.whole.read(context.Background(), slim.Name) })
	select {
	case read := <-reading:
		if read.Err != nil {
			return nil, read.Err
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		used := u.get(slim.Name)
		if !used.update(slim) { // another request has it already
			used.slim, used.whole = nil, read.Val.(definition)
			used.update(slim) // unless what was read is newer
		}
		return used.whole, nil
	case <-ctx.Done():
		return nil, apierrors.NewTimeoutError("the definition "+slim.Name+" was not read in time", 1)
	}
}

type inUseLister struct {
	seenLister
	inUse *inUse
}

// List implements listers.CustomResourceDefinitionLister. The definitions have no schemas.
func (l inUseLister) List(selector labels.Selector) ([]definition, error) {
	all, err := l.CustomResourceDefinitionLister.List(selector)
	l.inUse.mu.Lock()
	defer l.inUse.mu.Unlock()
	var listed []definition
	for _, d := range all {
		if !l.inUse.leaving[d.Name] {
			listed = append(listed, d)
		}
	}
	return listed, err
}

// Informer implements informers.CustomResourceDefinitionInformer.
func (u *inUse) Informer() cache.SharedIndexInformer {
	return inUseInformer{u.CustomResourceDefinitionInformer.Informer(), u}
}

type inUseInformer struct {
	cache.SharedIndexInformer
	inUse *inUse
}

// AddEventHandler adds upstream's handler.
func (i inUseInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	u := i.inUse
	u.handler = h
	return i.SharedIndexInformer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(o any, initial bool) { h.OnAdd(u.current(o.(definition)), initial) },
		UpdateFunc: func(before, after any) { h.OnUpdate(before, u.current(after.(definition))) },
		DeleteFunc: func(o any) {
			if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
				u.mu.Lock()
				delete(u.byName, name)
				u.mu.Unlock()
			}
			h.OnDelete(o)
		},
	})
}
