package controllers

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/metadata/metadatalister"
	"k8s.io/client-go/tools/cache"
	"k8s.io/controller-manager/pkg/informerfactory"
)

// whole are the resources of which quota reads more than metadata.
var whole = map[schema.GroupVersionResource]bool{
	corev1.SchemeGroupVersion.WithResource("pods"):                   true,
	corev1.SchemeGroupVersion.WithResource("services"):               true,
	corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"): true,
	resourcev1.SchemeGroupVersion.WithResource("resourceclaims"):     true,
}

// monitors are the informers with which the garbage collector and the quota controller watch every resource, of metadata
// wherever that is enough and no other controller has informers of whole objects.
//
// Both controllers start a monitor for a resource they find, and stop it when the resource is gone. Upstream's shared
// informers are not stopped by that: one for a CustomResourceDefinition that was deleted asks for it in vain, for good.
// These stop with the last monitor, and are recreated when the resource comes back.
type metadataInformers struct {
	client metadata.Interface
	shared *sharedInformers
	stop   <-chan struct{} // ends the shared informers

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu         sync.Mutex
	byResource map[schema.GroupVersionResource]*metadataInformer
}

var _ informerfactory.InformerFactory = &metadataInformers{}

func newMetadataInformers(client metadata.Interface, shared *sharedInformers, stop <-chan struct{}) *metadataInformers {
	ctx, cancel := context.WithCancel(context.Background())
	return &metadataInformers{
		client: client, shared: shared, stop: stop, ctx: ctx, cancel: cancel,
		byResource: map[schema.GroupVersionResource]*metadataInformer{},
	}
}

// ForResource returns the informer for the resource.
func (m *metadataInformers) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	if whole[gvr] || m.shared.has(gvr) {
		return m.shared.ForResource(gvr)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	found, ok := m.byResource[gvr]
	if !ok {
		found = &metadataInformer{owner: m, resource: gvr}
		m.byResource[gvr] = found
	}
	return found, nil
}

// Start starts the shared informers among those asked for. The others start with their monitors. The channel, which ends
// with the controller, is not the one that the shared informers end with.
func (m *metadataInformers) Start(<-chan struct{}) { m.shared.Start(m.stop) }

// close ends all informers of metadata and waits for them.
func (m *metadataInformers) close() {
	m.cancel()
	m.running.Wait()
}

// monitor is one resource's informer of metadata, or a succession of them.
type metadataInformer struct {
	owner    *metadataInformers
	resource schema.GroupVersionResource

	mu      sync.Mutex
	current *generation
}

// generation is an informer from the first handler on it to the end of the last monitor that runs it.
type generation struct {
	informer cache.SharedIndexInformer
	handlers int
	cancel   context.CancelFunc // nil before it runs
}

// Informer returns the resource's present informer.
func (m *metadataInformer) Informer() cache.SharedIndexInformer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return recountedInformer{m.present().informer, m}
}

// Lister lists what the resource's present informer has.
func (m *metadataInformer) Lister() cache.GenericLister {
	return metadatalister.NewRuntimeObjectShim(metadatalister.New(m.Informer().GetIndexer(), m.resource))
}

// present returns the present generation, making one if there is none. m.mu is held.
func (m *metadataInformer) present() *generation {
	if m.current == nil {
		informer := metadatainformer.NewFilteredMetadataInformer(m.owner.client, m.resource, metav1.NamespaceAll, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, nil).Informer()
		_ = informer.SetTransform(strip) // fails only on an informer that runs
		m.current = &generation{informer: informer}
	}
	return m.current
}

// add puts a handler on the present informer and counts it.
func (m *metadataInformer) add(put func(cache.SharedIndexInformer) (cache.ResourceEventHandlerRegistration, error)) (cache.ResourceEventHandlerRegistration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	generation := m.present()
	registration, err := put(generation.informer)
	if err == nil {
		generation.handlers++
	}
	return registration, err
}

// run runs the generation's informer, if it does not run yet, until stop closes and no one else runs it.
func (m *metadataInformer) run(g *generation, stop <-chan struct{}) {
	m.mu.Lock()
	if g.cancel == nil {
		var ctx context.Context
		ctx, g.cancel = context.WithCancel(m.owner.ctx)
		m.owner.running.Go(func() { g.informer.RunWithContext(ctx) })
	}
	m.mu.Unlock()

	<-stop

	m.mu.Lock()
	defer m.mu.Unlock()
	g.handlers--
	if g.handlers == 0 {
		g.cancel()
		m.current = nil
	}
}

// recountedInformer is a generation's informer as upstream's controllers use it: they put one handler on it, take its
// controller, and run that.
type recountedInformer struct {
	cache.SharedIndexInformer
	monitor *metadataInformer
}

// AddEventHandler puts a handler on the present informer.
func (i recountedInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.monitor.add(func(informer cache.SharedIndexInformer) (cache.ResourceEventHandlerRegistration, error) {
		return informer.AddEventHandler(h)
	})
}

// AddEventHandlerWithResyncPeriod puts a handler on the present informer.
func (i recountedInformer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, period time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.monitor.add(func(informer cache.SharedIndexInformer) (cache.ResourceEventHandlerRegistration, error) {
		return informer.AddEventHandlerWithResyncPeriod(h, period)
	})
}

// AddEventHandlerWithOptions puts a handler on the present informer.
func (i recountedInformer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.monitor.add(func(informer cache.SharedIndexInformer) (cache.ResourceEventHandlerRegistration, error) {
		return informer.AddEventHandlerWithOptions(h, options)
	})
}

// GetController returns a controller that runs the present informer.
func (i recountedInformer) GetController() cache.Controller {
	i.monitor.mu.Lock()
	defer i.monitor.mu.Unlock()
	generation := i.monitor.present()
	return recountedController{generation.informer.GetController(), i.monitor, generation}
}

type recountedController struct {
	cache.Controller
	monitor    *metadataInformer
	generation *generation
}

// Run runs the informer until stop closes.
func (c recountedController) Run(stop <-chan struct{}) { c.monitor.run(c.generation, stop) }

// RunWithContext runs the informer until ctx ends.
func (c recountedController) RunWithContext(ctx context.Context) {
	c.monitor.run(c.generation, ctx.Done())
}

// strip leaves of an object's metadata what owner references and counts need.
func strip(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		m.ManagedFields, m.Annotations, m.Labels = nil, nil, nil
	}
	return object, nil
}
