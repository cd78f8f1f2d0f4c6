package controllers

import (
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

// runState is shared by the controllers of one call of Run.
type runState struct {
	config Config
	// shared are the server's informers, without the handlers of an earlier call of Run.
	shared *sharedInformers
	// narrow are informers with a field selector, by selector. They stop with this call of Run.
	narrow map[string]informers.SharedInformerFactory
	// client is for informers of this call of Run.
	client kubernetes.Interface
	// discovery reads what is served as the server itself: without any resources, upstream's controllers end the process.
	discovery discovery.DiscoveryInterface
	// metadata are the informers of every resource.
	metadata *metadataInformers
	// resources notifies when the set of resources may have changed.
	resources *resourceChanges
	// mapper finds resources by kind. The garbage collector resets it.
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// graph is the garbage collector's, once that is built.
	graph *garbagecollector.GraphBuilder
	// started is closed when all event handlers are registered and informers may run.
	started chan struct{}
	stop    chan struct{}
}

func newRunState(c Config) (*runState, error) {
	own, err := newClients(c.Loopback, "shared")
	if err != nil {
		return nil, err
	}
	clients, err := newClients(c.as(""), "shared")
	if err != nil {
		return nil, err
	}
	discovery := own.Discovery()
	// The namespace controller would exit the process if discovery lists no resources.
	if resources, err := discovery.ServerPreferredNamespacedResources(); len(resources) == 0 {
		return nil, errors.Join(errors.New("read discovery: the server lists no resources"), err)
	}
	started, stop := make(chan struct{}), make(chan struct{})
	shared := newSharedInformers(c.Informers, started, stop)
	return &runState{
		config:    c,
		shared:    shared,
		narrow:    map[string]informers.SharedInformerFactory{},
		client:    clients,
		discovery: discovery,
		metadata:  newMetadataInformers(clients.metadata, shared, c.Sleep, c.InformersStop),
		resources: &resourceChanges{},
		mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery)),
		started:   started,
		stop:      stop,
	}, nil
}

// selected returns informers of the objects that the field selector matches, for a resource with too many objects to hold all.
func (s *runState) selected(selector fields.Selector) informers.SharedInformerFactory {
	key := selector.String()
	if factory, ok := s.narrow[key]; ok {
		return factory
	}
	factory := informers.NewSharedInformerFactoryWithOptions(s.client, 0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.FieldSelector = key }))
	s.narrow[key] = factory
	return factory
}

// start starts all informers that the controllers have requested.
func (s *runState) start() {
	s.shared.Start(s.config.InformersStop)
	for _, factory := range s.narrow {
		factory.Start(s.stop)
	}
	close(s.started)
}

// close stops the informers of this call of Run, waits for them, and removes its handlers from the shared ones.
func (s *runState) close() error {
	close(s.stop)
	for _, factory := range s.narrow {
		factory.Shutdown()
	}
	s.metadata.close()
	return s.shared.removeHandlers()
}
