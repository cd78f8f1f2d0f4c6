package controllers

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/controller-manager/pkg/informerfactory"
)

// Controller is a controller of another package, which runs as those of this one do: on the same informers, and on one
// server at a time.
type Controller struct {
	// Name is the one that upstream has for it, and Aliases those that upstream had before.
	Name    string
	Aliases []string
	// Off says that it runs only where it is selected by name.
	Off bool
	// Build makes the controller and registers its event handlers, which get no events before it has returned. It returns
	// what runs until its context ends, with everything that it started; or nil when there is nothing to do.
	Build func(context.Context, Shared) (run func(context.Context), err error)
}

// Shared is what a controller of another package shares with those of this one.
type Shared struct {
	// Loopback reaches this server as a member of system:masters.
	Loopback *rest.Config
	// Informers are the server's. What runs them is Run; to start them does nothing.
	Informers informers.SharedInformerFactory
	// Selected returns informers of the objects that a field selector matches, for one resource that is too large to be
	// held whole.
	Selected func(fields.Selector) informers.SharedInformerFactory
	// Metadata are informers of any resource, of metadata where no controller needs more.
	Metadata informerfactory.InformerFactory
	// Kinds finds resources by kind.
	Kinds *restmapper.DeferredDiscoveryRESTMapper
	// Started is closed when the event handlers of all controllers are registered and informers run.
	Started chan struct{}
	Cluster Cluster
}

// Cluster is what controllers that set up nodes need to know of the cluster.
type Cluster struct {
	// CACertFile and CAKeyFile are the authority that signs certificates of clients and kubelets.
	CACertFile, CAKeyFile string
}

const suffix = "-controller"

// internal returns the controller as those of this package are.
func (c Controller) internal() controller {
	return controller{
		name: strings.TrimSuffix(c.Name, suffix), aliases: c.Aliases, other: true, off: c.Off,
		build: func(ctx context.Context, s *runState, clients clients) (func(context.Context), error) {
			return c.Build(ctx, Shared{
				Loopback: s.config.Loopback, Informers: unstarted{s.shared}, Metadata: s.metadata, Kinds: s.mapper,
				Selected: func(selector fields.Selector) informers.SharedInformerFactory { return s.selected(clients, selector) },
				Started:  s.started, Cluster: s.config.Cluster,
			})
		},
	}
}

// known returns all controllers that there are. The garbage collector and the quota controller come after those that have
// informers of whole objects, and use these.
func (c Config) known() []controller {
	known := make([]controller, 0, len(c.Others)+len(all))
	for _, other := range c.Others {
		known = append(known, other.internal())
	}
	return slices.Concat(known, all)
}

// unstarted are shared informers that their user does not start.
type unstarted struct {
	informers.SharedInformerFactory
}

// Start does nothing.
func (unstarted) Start(<-chan struct{}) {}

// StartWithContext does nothing.
func (unstarted) StartWithContext(context.Context) {}

// followKinds has resources found by kind as they are served now. The garbage collector does this too, where it runs.
func (s *runState) followKinds(ctx context.Context, changed <-chan struct{}) {
	again(ctx, changed, func(ctx context.Context) {
		s.mapper.Reset()
		<-ctx.Done()
	})
}
