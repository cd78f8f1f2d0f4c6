package controllers

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/rbac"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/informers/storagemigration"
	"k8s.io/client-go/tools/cache"
)

// sharedInformers are the server's shared informers, with a record of the handlers that are put on them. Upstream's
// controllers leave their handlers behind, since they end with their process; here they end before it.
//
// The handlers get no event before started is closed. Upstream's constructors add their handlers first and then set what
// the handlers use, counting on informers that don't run yet; here they do.
//
// The groups below are those that the controllers use; another group's informers would not be recorded.
type sharedInformers struct {
	informers.SharedInformerFactory
	started, stop <-chan struct{}

	mu       sync.Mutex
	handlers []handler
}

type handler struct {
	informer     cache.SharedIndexInformer
	registration cache.ResourceEventHandlerRegistration
}

// newSharedInformers returns informers whose handlers get events from started until stop.
func newSharedInformers(factory informers.SharedInformerFactory, started, stop <-chan struct{}) *sharedInformers {
	return &sharedInformers{SharedInformerFactory: factory, started: started, stop: stop}
}

// InformerFor returns the shared informer for the object's type, recording handlers.
func (s *sharedInformers) InformerFor(object runtime.Object, create internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return recordingInformer{s.SharedInformerFactory.InformerFor(object, create), s}
}

// ForResource returns the shared informer for the resource, recording handlers. It returns an error when the client
// knows no such type.
func (s *sharedInformers) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	informer, err := s.SharedInformerFactory.ForResource(gvr)
	if err != nil {
		return nil, err
	}
	return recordingGeneric{informer, s}, nil
}

// Admissionregistration returns the group's informers, recording handlers; so do the other groups.
func (s *sharedInformers) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(s, "", nil)
}

// Core is as Admissionregistration.
func (s *sharedInformers) Core() core.Interface { return core.New(s, "", nil) }

// Networking is as Admissionregistration.
func (s *sharedInformers) Networking() networking.Interface { return networking.New(s, "", nil) }

// Rbac is as Admissionregistration.
func (s *sharedInformers) Rbac() rbac.Interface { return rbac.New(s, "", nil) }

// Resource is as Admissionregistration.
func (s *sharedInformers) Resource() resource.Interface { return resource.New(s, "", nil) }

// Storage is as Admissionregistration.
func (s *sharedInformers) Storage() storage.Interface { return storage.New(s, "", nil) }

// Storagemigration is as Admissionregistration.
func (s *sharedInformers) Storagemigration() storagemigration.Interface {
	return storagemigration.New(s, "", nil)
}

func (s *sharedInformers) record(informer cache.SharedIndexInformer, registration cache.ResourceEventHandlerRegistration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = append(s.handlers, handler{informer, registration})
}

// removeHandlers takes all recorded handlers off. It returns the errors of informers that would not let go.
func (s *sharedInformers) removeHandlers() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, h := range s.handlers {
		if err := h.informer.RemoveEventHandler(h.registration); err != nil {
			errs = append(errs, fmt.Errorf("take a handler off a shared informer: %w", err))
		}
	}
	s.handlers = nil
	return errors.Join(errs...)
}

// held returns the handler as it is put on an informer.
func (s *sharedInformers) held(h cache.ResourceEventHandler) cache.ResourceEventHandler {
	return heldHandler{h, s}
}

// heldHandler is a handler that waits for its informers' owner to start.
type heldHandler struct {
	handler cache.ResourceEventHandler
	owner   *sharedInformers
}

// OnAdd hands the event on.
func (h heldHandler) OnAdd(object any, initial bool) {
	if h.started() {
		h.handler.OnAdd(object, initial)
	}
}

// OnUpdate hands the event on.
func (h heldHandler) OnUpdate(before, after any) {
	if h.started() {
		h.handler.OnUpdate(before, after)
	}
}

// OnDelete hands the event on.
func (h heldHandler) OnDelete(object any) {
	if h.started() {
		h.handler.OnDelete(object)
	}
}

// started waits until handlers may run. It returns false if the controllers ended first.
func (h heldHandler) started() bool {
	select {
	case <-h.owner.started:
		return true
	case <-h.owner.stop:
		return false
	}
}

type recordingGeneric struct {
	informers.GenericInformer
	owner *sharedInformers
}

// Informer returns the informer, recording handlers.
func (r recordingGeneric) Informer() cache.SharedIndexInformer {
	return recordingInformer{r.GenericInformer.Informer(), r.owner}
}

type recordingInformer struct {
	cache.SharedIndexInformer
	owner *sharedInformers
}

// AddEventHandler adds and records the handler.
func (r recordingInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return r.recorded(r.SharedIndexInformer.AddEventHandler(r.owner.held(h)))
}

// AddEventHandlerWithResyncPeriod adds and records the handler.
func (r recordingInformer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return r.recorded(r.SharedIndexInformer.AddEventHandlerWithResyncPeriod(r.owner.held(h), period))
}

// AddEventHandlerWithOptions adds and records the handler.
func (r recordingInformer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return r.recorded(r.SharedIndexInformer.AddEventHandlerWithOptions(r.owner.held(h), options))
}

func (r recordingInformer) recorded(registration cache.ResourceEventHandlerRegistration, err error) (cache.ResourceEventHandlerRegistration, error) {
	if err == nil {
		r.owner.record(r.SharedIndexInformer, registration)
	}
	return registration, err
}

// AddIndexers adds those indexers that the informer does not have. An indexer cannot be taken off, and the one that a
// former call of Run left is the same function.
func (r recordingInformer) AddIndexers(indexers cache.Indexers) error {
	present := r.GetIndexer().GetIndexers()
	missing := cache.Indexers{}
	for name, index := range indexers {
		if _, ok := present[name]; !ok {
			missing[name] = index
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return r.SharedIndexInformer.AddIndexers(missing)
}
