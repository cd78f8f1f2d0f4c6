package controllers

import (
	"context"
	"errors"
	"fmt"
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

	"github.com/sqube/sqube/server/informer"
)

// sharedInformers are the server's shared informers, with a record of the handlers that are added to them. Upstream's controllers
// never remove their handlers, since they run until their process exits; here they stop earlier.
//
// Handlers get no events before started is closed. Upstream's constructors add handlers first and then set what the handlers use,
// since their informers are not running yet; here they are.
type sharedInformers struct {
	informer.Groups
	factory
	started, stop <-chan struct{}

	requested *sync.Map // by resource, the informers that were requested, also by other parts

	mu       sync.Mutex
	handlers []handler
	byType   map[reflect.Type]cache.SharedIndexInformer
}

// factory has the methods that sharedInformers do not have themselves.
type factory struct {
	informers.SharedInformerFactory
}

type handler struct {
	informer     cache.SharedIndexInformer
	registration cache.ResourceEventHandlerRegistration
}

// newSharedInformers returns informers whose handlers get events from started until stop.
func newSharedInformers(shared informers.SharedInformerFactory, started, stop <-chan struct{}) *sharedInformers {
	s := &sharedInformers{factory: factory{shared}, started: started, stop: stop, requested: &sync.Map{}, byType: map[reflect.Type]cache.SharedIndexInformer{}}
	s.Groups = informer.GroupsOf(s)
	return s
}

// part returns informers whose handlers get events from started on.
func (s *sharedInformers) part(started <-chan struct{}) *sharedInformers {
	part := newSharedInformers(s.factory.SharedInformerFactory, started, s.stop)
	part.requested = s.requested
	return part
}

// InformerFor returns the shared informer for the object's type, recording handlers.
func (s *sharedInformers) InformerFor(object runtime.Object, create internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	informer := s.factory.InformerFor(object, create)
	s.note(object, informer)
	return s.recording(informer)
}

// ForResource returns the shared informer for the resource, recording handlers. It returns an error if the client
// has no such type.
func (s *sharedInformers) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	informer, err := s.factory.ForResource(gvr)
	if err != nil {
		return nil, err
	}
	return recordingGeneric{informer, s}, nil
}

// Start does nothing: the factory is started when handlers have been added.
func (s *sharedInformers) Start(<-chan struct{}) {}

// StartWithContext does nothing.
func (s *sharedInformers) StartWithContext(context.Context) {}

// WaitForCacheSync waits for the informers that were requested here, not for those of others.
func (s *sharedInformers) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	s.mu.Lock()
	informers := maps.Clone(s.byType)
	s.mu.Unlock()
	synced := map[reflect.Type]bool{}
	for kind, informer := range informers {
		synced[kind] = cache.WaitForCacheSync(stop, informer.HasSynced)
	}
	return synced
}

// note records that the informer of the object's type was requested.
func (s *sharedInformers) note(object runtime.Object, informer cache.SharedIndexInformer) {
	kinds, _, err := scheme.Scheme.ObjectKinds(object)
	if err != nil {
		return // not a built-in type, hence not in the factory
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byType[reflect.TypeOf(object)] = informer
	for _, kind := range kinds {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		s.requested.Store(resource, true)
	}
}

func (s *sharedInformers) record(informer cache.SharedIndexInformer, registration cache.ResourceEventHandlerRegistration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = append(s.handlers, handler{informer, registration})
}

// removeHandlers removes all recorded handlers. It returns the errors of informers that fail to.
func (s *sharedInformers) removeHandlers() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, h := range s.handlers {
		if err := h.informer.RemoveEventHandler(h.registration); err != nil {
			errs = append(errs, fmt.Errorf("remove a handler from a shared informer: %w", err))
		}
	}
	s.handlers = nil
	return errors.Join(errs...)
}

// delay returns a handler that gets events from started on.
func (s *sharedInformers) delay(h cache.ResourceEventHandler) cache.ResourceEventHandler {
	whenStarted := func(handle func()) {
		select {
		case <-s.started:
			handle()
		case <-s.stop:
		}
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(object any, initial bool) { whenStarted(func() { h.OnAdd(object, initial) }) },
		UpdateFunc: func(before, after any) { whenStarted(func() { h.OnUpdate(before, after) }) },
		DeleteFunc: func(object any) { whenStarted(func() { h.OnDelete(object) }) },
	}
}

type recordingGeneric struct {
	informers.GenericInformer
	owner *sharedInformers
}

// Informer returns the informer, recording handlers.
func (r recordingGeneric) Informer() cache.SharedIndexInformer {
	return r.owner.recording(r.GenericInformer.Informer())
}

type recordingInformer struct{ informer.Adding }

func (s *sharedInformers) recording(shared cache.SharedIndexInformer) recordingInformer {
	add := func(h cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
		registration, err := shared.AddEventHandlerWithOptions(s.delay(h), options)
		if err == nil {
			s.record(shared, registration)
		}
		return registration, err
	}
	return recordingInformer{informer.Adding{SharedIndexInformer: shared, Add: add}}
}

// AddIndexers adds the indexers that the informer does not have. Indexers can't be removed, and one that an earlier call of Run
// left is the same function.
func (r recordingInformer) AddIndexers(indexers cache.Indexers) error {
	return addMissing(indexers, r.SharedIndexInformer.GetIndexer(), r.SharedIndexInformer.AddIndexers)
}

// GetIndexer returns the informer's store, which adds indexers in the same way.
func (r recordingInformer) GetIndexer() cache.Indexer {
	return lenientIndexer{r.SharedIndexInformer.GetIndexer()}
}

type lenientIndexer struct{ cache.Indexer }

// AddIndexers adds the indexers that the store does not have.
func (i lenientIndexer) AddIndexers(indexers cache.Indexers) error {
	return addMissing(indexers, i.Indexer, i.Indexer.AddIndexers)
}

// GetIndexers returns a copy, which does not change while controllers that are built at the same time add indexers.
func (i lenientIndexer) GetIndexers() cache.Indexers {
	indexing.Lock()
	defer indexing.Unlock()
	return maps.Clone(i.Indexer.GetIndexers())
}

// indexing is held while indexers are added, and while the map of those that a store has is read, since that is the store's own.
var indexing sync.Mutex

func addMissing(indexers cache.Indexers, store cache.Indexer, add func(cache.Indexers) error) error {
	indexing.Lock()
	defer indexing.Unlock()
	present := store.GetIndexers()
	missing := cache.Indexers{}
	for name, index := range indexers {
		if _, ok := present[name]; !ok {
			missing[name] = index
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return add(missing)
}
