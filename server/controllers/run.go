package controllers

import (
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/restmapper"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
)

// environment is what the controllers of one call of Run share.
type runState struct {
	config Config
	// shared are the server's informers, less the handlers that a former call of Run had on them.
	shared *sharedInformers
	// narrow are informers over a selection, by field selector. They end with this call of Run.
	narrow map[string]informers.SharedInformerFactory
	// monitors are the informers of every resource.
	metadata *metadataInformers
	// resources tells when the set of resources may have changed.
	resources *resourceChanges
	// mapper finds resources by kind. The garbage collector resets it.
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// graph has the garbage collector's monitors, once that is built.
	graph *garbagecollector.GraphBuilder
	// started is closed when all event handlers are registered and informers may run.
	started chan struct{}
	stop    chan struct{}
}

func newRunState(c Config) (*runState, error) {
	clients, err := newClients(c.Loopback, "shared")
	if err != nil {
		return nil, err
	}
	// The namespace controller would end the process when discovery names no resources.
	if resources, err := clients.Discovery().ServerPreferredNamespacedResources(); len(resources) == 0 {
		return nil, errors.Join(errors.New("read discovery: the server names no resources"), err)
	}
	metadataClient, err := metadata.NewForConfig(clients.config)
	if err != nil {
		return nil, fmt.Errorf("make the client for metadata: %w", err)
	}
	started, stop := make(chan struct{}), make(chan struct{})
	shared := newSharedInformers(c.Informers, started, stop)
	return &runState{
		config:    c,
		shared:    shared,
		narrow:    map[string]informers.SharedInformerFactory{},
		metadata:  newMetadataInformers(metadataClient, shared, c.InformersStop),
		resources: &resourceChanges{},
		mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(clients.Discovery())),
		started:   started,
		stop:      stop,
	}, nil
}

// selected returns informers of the objects that the field selector matches, for one resource that is too large to be
// held whole.
func (s *runState) selected(c clients, selector fields.Selector) informers.SharedInformerFactory {
	key := selector.String()
	if factory, ok := s.narrow[key]; ok {
		return factory
	}
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.FieldSelector = key }))
	s.narrow[key] = factory
	return factory
}

// start runs all informers that the controllers have asked for.
func (s *runState) start() {
	s.shared.Start(s.config.InformersStop)
	for _, factory := range s.narrow {
		factory.Start(s.stop)
	}
	close(s.started)
}

// close ends the informers of this call of Run, waits for them, and takes its handlers off the shared ones.
func (s *runState) close() error {
	close(s.stop)
	for _, factory := range s.narrow {
		factory.Shutdown()
	}
	s.metadata.close()
	return s.shared.removeHandlers()
}
