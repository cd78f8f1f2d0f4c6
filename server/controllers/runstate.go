package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"

	"github.com/sqube/sqube/server/informer"
)

// runState is shared by the controllers of one call of Run.
type runState struct {
	config Config
	// shared are the server's informers, without the handlers of an earlier call of Run.
	shared *sharedInformers
	// parts are those of the parts.
	parts []*sharedInformers
	// client is kube-controller-manager's.
	client kubernetes.Interface
	// narrow are informers with a field selector. They stop with this call of Run.
	narrow *narrowInformers
	// discovery reads what is served as the server itself: without any resources, upstream's controllers end the process.
	discovery discovery.DiscoveryInterface
	// metadata are the informers of every resource.
	metadata *metadataInformers
	// resources notifies when the set of resources may have changed.
	resources *resourceChanges
	// mapper finds resources by kind. The garbage collector resets it.
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// collector is the garbage collector.
	collector *collector
	// started is closed when all event handlers of the part are registered and informers may run.
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
	close(started) // of what is not in a part: the informers of the collector and of quota, whose handlers only queue
	shared := newSharedInformers(c.Informers, started, stop)
	return &runState{
		config:    c,
		shared:    shared,
		client:    clients,
		narrow:    &narrowInformers{bySelector: map[string]informers.SharedInformerFactory{}},
		collector: &collector{made: make(chan struct{})},
		discovery: discovery,
		metadata:  newMetadataInformers(clients.metadata, shared, c),
		resources: c.resources,
		mapper:    restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery)),
		started:   started,
		stop:      stop,
	}, nil
}

// narrowInformers are informers with a field selector, by selector.
type narrowInformers struct {
	mu         sync.Mutex
	bySelector map[string]informers.SharedInformerFactory
}

// selected returns informers of the objects that the field selector matches, for a resource with too many objects to hold all.
func (s *runState) selected(selector fields.Selector) informers.SharedInformerFactory {
	n, key := s.narrow, selector.String()
	n.mu.Lock()
	defer n.mu.Unlock()
	if factory, ok := n.bySelector[key]; ok {
		return factory
	}
	factory := s.config.selected(s.client, selector)
	n.bySelector[key] = factory
	return factory
}

// selected returns informers of the objects that a field selector matches. Those of what is not stored here use the client.
func (c Config) selected(client kubernetes.Interface, selector fields.Selector) *informer.Factory {
	made := informer.NewFactory(informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.FieldSelector = selector.String() })), c.Feed, nil)
	made.Source = func(resource schema.GroupVersionResource) informer.Source { return c.Selected(resource, selector) }
	return made
}

func (n *narrowInformers) all() []informers.SharedInformerFactory {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.bySelector))
}

// start starts all informers that the controllers have requested.
func (s *runState) start() {
	s.shared.factory.Start(s.config.InformersStop)
	for _, factory := range s.narrow.all() {
		factory.Start(s.stop)
	}
	close(s.started)
}

// close stops the informers of this call of Run, waits for them, and removes its handlers from the shared ones.
func (s *runState) close() error {
	close(s.stop)
	for _, factory := range s.narrow.all() {
		factory.Shutdown()
	}
	s.metadata.close()
	errs := []error{s.shared.removeHandlers()}
	for _, part := range s.parts {
		errs = append(errs, part.removeHandlers())
	}
	return errors.Join(errs...)
}

// A part of a call of Run are the controllers that are built at the same time: at once, or when they first have something to do.

// inGroups returns the controllers that wait for the same, in their order. The first group, which may be empty, waits for nothing.
func inGroups(controllers []controller) [][]controller {
	type condition struct {
		awaits  string
		clients bool
	}
	groups, at := [][]controller{nil}, map[condition]int{{awaits: fmt.Sprint(of())}: 0}
	for _, c := range controllers {
		when := condition{fmt.Sprint(c.awaits), c.awaitsClients}
		i, ok := at[when]
		if !ok {
			i, at[when], groups = len(groups), len(groups), append(groups, nil)
		}
		groups[i] = append(groups[i], c)
	}
	return groups
}

// startNeeded calls start for each part, with its index, when first is closed and the part has something to do. It returns when all have been
// started, or ctx ends.
func startNeeded(ctx context.Context, first <-chan struct{}, parts []controller, config Config, start func(int)) {
	awake := make(chan int, len(parts))
	var written <-chan struct{}
	var waiting []int // for written
	asleep := make([][]func(), len(parts))
	for i, c := range parts {
		wake := sync.OnceFunc(func() { awake <- i }) // Sleep may call it even if it returns false
		if c.awaitsClients && config.Written != nil {
			written, waiting = config.Written, append(waiting, i)
			continue
		} else if c.awaitsClients {
			wake()
		}
		for _, resource := range c.awaits {
			if cancel, sleeps := config.Sleep(ctx, resource, wake); sleeps {
				asleep[i] = append(asleep[i], cancel)
			} else {
				wake()
			}
		}
	}
	defer func() {
		for _, cancel := range slices.Concat(asleep...) {
			cancel()
		}
	}()
	select {
	case <-first:
	case <-ctx.Done():
		return
	}
	for left := len(parts); left > 0; {
		select {
		case i := <-awake:
			start(i)
			left--
		case <-written:
			for _, i := range waiting {
				start(i)
			}
			left -= len(waiting)
			written = nil
		case <-ctx.Done():
			return
		}
	}
}

// part returns the state of a part. Its event handlers are called once its controllers have been built.
func (s *runState) part() *runState {
	part := *s
	part.started = make(chan struct{})
	part.shared = s.shared.part(part.started)
	s.parts = append(s.parts, part.shared)
	return &part
}

// run builds the controllers, calls built, and runs them until ctx ends. It returns the error of one that can't be built.
func (s *runState) run(ctx context.Context, controllers []controller, built func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failed error
	loops := map[string]func(context.Context){}
	for _, controller := range controllers {
		loop, err := controller.prepare(ctx, s)
		if err != nil {
			if ctx.Err() == nil {
				failed = fmt.Errorf("%s: %w", controller.title(), err)
			}
			cancel() // those already built still run, since only that ends their queues
			break
		}
		if loop != nil {
			loops[controller.title()] = loop
		}
	}
	s.start()
	built()
	var running sync.WaitGroup
	if len(loops) == 0 && failed == nil { // the resources that they control are not served
		<-ctx.Done()
	}
	for name, loop := range loops {
		ended := s.config.Track(name)
		running.Go(func() {
			defer ended()
			loop(ctx)
		})
	}
	running.Wait()
	return failed
}

// collector is the garbage collector of a call of Run.
type collector struct {
	made    chan struct{} // closed when it has been built, or will not be
	builder *garbagecollector.GraphBuilder
}

// graph returns the collector's graph once it is built; nil if it does not run.
func (c *collector) graph(ctx context.Context) *garbagecollector.GraphBuilder {
	select {
	case <-c.made:
		return c.builder
	case <-ctx.Done():
		return nil
	}
}
