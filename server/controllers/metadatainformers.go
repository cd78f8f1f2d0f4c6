package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/metadata/metadatalister"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/server/informer"
)

// whole are the resources whose objects quota reads beyond their metadata.
var whole = map[schema.GroupVersionResource]bool{
	corev1.SchemeGroupVersion.WithResource("pods"):                   true,
	corev1.SchemeGroupVersion.WithResource("services"):               true,
	corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"): true,
	resourcev1.SchemeGroupVersion.WithResource("resourceclaims"):     true,
}

// metadataInformers are the informers with which the garbage collector and the quota controller watch every resource: of metadata
// if that is enough and no other controller has informers of whole objects.
//
// Both controllers start an informer for each resource that they find, and stop it when the resource is gone. That does not stop
// upstream's shared informers: after the deletion of a CustomResourceDefinition they would retry forever. These stop with their
// last user, and are recreated when the resource comes back.
type metadataInformers struct {
	client metadata.Interface
	config Config
	shared *sharedInformers

	ctx    context.Context
	cancel context.CancelFunc
	stops  *closings // of the controllers' use of informers

	mu         sync.Mutex
	byResource map[schema.GroupVersionResource]*metadataInformer
	started    []*informer.Informer // that may run
}

func newMetadataInformers(client metadata.Interface, shared *sharedInformers, c Config) *metadataInformers {
	ctx, cancel := context.WithCancel(context.Background())
	return &metadataInformers{
		client: client, config: c, shared: shared, ctx: ctx, cancel: cancel, stops: newClosings(ctx),
		byResource: map[schema.GroupVersionResource]*metadataInformer{},
	}
}

// ForResource returns the informer for the resource.
func (m *metadataInformers) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	if _, requested := m.shared.requested.Load(gvr); requested || whole[gvr] {
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

// Start starts the shared informers that were requested. The others start when their users run them. It ignores the channel, which
// closes when the controller stops, since shared informers outlive the controller.
func (m *metadataInformers) Start(<-chan struct{}) { m.shared.factory.Start(m.config.InformersStop) }

// stored returns the metadata of the objects of a resource in a namespace as they are stored. It returns an error for a resource that is not
// stored here.
func (c Config) stored(ctx context.Context, resource schema.GroupVersionResource, namespace string) ([]runtime.Object, error) {
	source := c.Metadata(resource)
	if source == nil {
		return nil, fmt.Errorf("%s is not stored here", resource.GroupResource())
	}
	if kept, ok := source.(interface{ Destroy() }); ok {
		defer kept.Destroy()
	}
	return c.Feed.List(ctx, source, namespace)
}

// close stops all informers of metadata and waits for them.
func (m *metadataInformers) close() {
	m.cancel()
	m.stops.ran.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, started := range m.started {
		started.Wait()
	}
}

// start starts an informer, which stops when ctx ends.
func (m *metadataInformers) start(ctx context.Context, i *informer.Informer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.started = append(slices.DeleteFunc(m.started, (*informer.Informer).IsStopped), i)
	i.Start(ctx)
}

// metadataInformer is one resource's informer of metadata, or several in succession.
type metadataInformer struct {
	owner    *metadataInformers
	resource schema.GroupVersionResource

	mu      sync.Mutex
	current *generation
}

// generation is an informer, from its first handler until its last user stops.
type generation struct {
	informer *informer.Informer
	handlers int
	cancel   context.CancelFunc // nil before it runs
}

// Informer returns the resource's current informer.
func (m *metadataInformer) Informer() cache.SharedIndexInformer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return countedInformer{informer.Adding{SharedIndexInformer: m.present().informer, Add: m.add}, m}
}

// Lister lists the objects of the resource's current informer.
func (m *metadataInformer) Lister() cache.GenericLister {
	return metadatalister.NewRuntimeObjectShim(metadatalister.New(m.Informer().GetIndexer(), m.resource))
}

// present returns the current generation, and creates one if there is none. m.mu is held.
func (m *metadataInformer) present() *generation {
	if m.current == nil {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		made := metadatainformer.NewFilteredMetadataInformer(m.owner.client, m.resource, metav1.NamespaceAll, 0, indexers, nil).Informer()
		m.current = &generation{informer: informer.New(made, informer.Options{
			Name: m.resource.Resource, Feed: m.owner.config.Feed, Transform: strip,
			Source: func() informer.Source { return m.owner.config.Metadata(m.resource) },
		})}
	}
	return m.current
}

// run starts the generation's informer, if it does not run yet. The informer stops when stop is closed and it has no other user.
func (m *metadataInformer) run(g *generation, stop <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if g.cancel == nil {
		var ctx context.Context
		ctx, g.cancel = context.WithCancel(m.owner.ctx)
		m.owner.start(ctx, g.informer)
	}
	m.owner.stops.when(stop, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if g.handlers--; g.handlers == 0 {
			g.cancel()
			m.current = nil
		}
	})
}

// countedInformer is a generation's informer that counts its users. Upstream's controllers add one handler to it, get its
// controller, and run that.
type countedInformer struct {
	informer.Adding
	monitor *metadataInformer
}

// add adds a handler to the current informer and counts it.
func (m *metadataInformer) add(h cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	generation := m.present()
	registration, err := generation.informer.AddEventHandlerWithOptions(h, options)
	if err == nil {
		generation.handlers++
	}
	return registration, err
}

// GetController returns a controller that runs the current informer.
func (i countedInformer) GetController() cache.Controller {
	i.monitor.mu.Lock()
	defer i.monitor.mu.Unlock()
	generation := i.monitor.present()
	return countedController{generation.informer.GetController(), i.monitor, generation}
}

type countedController struct {
	cache.Controller
	monitor    *metadataInformer
	generation *generation
}

// Run runs the informer until stop closes. Like that of upstream's shared informers, it returns at once: a controller has one for each resource.
func (c countedController) Run(stop <-chan struct{}) { c.monitor.run(c.generation, stop) }

// RunWithContext is Run until ctx ends.
func (c countedController) RunWithContext(ctx context.Context) {
	c.monitor.run(c.generation, ctx.Done())
}

// strip reduces an object's metadata to what owner references and counts need.
func strip(object any) (any, error) {
	if m, ok := object.(*metav1.PartialObjectMetadata); ok {
		m.ManagedFields, m.Annotations, m.Labels = nil, nil, nil
	}
	return object, nil
}
