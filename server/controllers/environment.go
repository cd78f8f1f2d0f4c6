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
type environment struct {
	config Config
	// shared are the server's informers, less the handlers that a former call of Run had on them.
	shared *sharedInformers
	// narrow are informers over a selection, by field selector. They end with this call of Run.
	narrow map[string]informers.SharedInformerFactory
	// monitors are the informers of every resource.
	monitors *monitors
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

func newEnvironment(c Config) (*environment, error) {
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
	return &environment{
		config:    c,
		shared:    shared,
		narrow:    map[string]informers.SharedInformerFactory{},
		monitors:  newMonitors(metadataClient, shared, c.InformersStop),
		resources: &resourceChanges{},
		mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(clients.Discovery())),
		started:   started,
		stop:      stop,
	}, nil
}

// selected returns informers of the objects that the field selector matches, for one resource that is too large to be
// held whole.
func (e *environment) selected(c clients, selector fields.Selector) informers.SharedInformerFactory {
	key := selector.String()
	if factory, ok := e.narrow[key]; ok {
		return factory
	}
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.FieldSelector = key }))
	e.narrow[key] = factory
	return factory
}

// start runs all informers that the controllers have asked for.
func (e *environment) start() {
	e.shared.Start(e.config.InformersStop)
	for _, factory := range e.narrow {
		factory.Start(e.stop)
	}
	close(e.started)
}

// close ends the informers of this call of Run, waits for them, and takes its handlers off the shared ones.
func (e *environment) close() error {
	close(e.stop)
	for _, factory := range e.narrow {
		factory.Shutdown()
	}
	e.monitors.close()
	return e.shared.removeHandlers()
}
