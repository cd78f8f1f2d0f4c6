package controllers

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/controller-manager/pkg/informerfactory"
)

// Controller is a controller of another package that runs like those of this one: on the same informers, and on one server at a
// time.
type Controller struct {
	// Name is upstream's name of the controller, and Aliases are upstream's former names.
	Name    string
	Aliases []string
	// Off means that it runs only if it is selected by name.
	Off bool
	// Awaits are resources without whose objects the controller has nothing to do. It is built when one of them has one.
	Awaits []schema.GroupVersionResource
	// Build makes the controller and registers its event handlers, which get no events before Build has returned. run runs until
	// its context ends and everything that it started has stopped. It is nil if there is nothing to do.
	Build func(context.Context, Shared) (run func(context.Context), err error)
}

// Shared is what controllers of other packages share with those of this one.
type Shared struct {
	// As reaches this server as the controller of that name.
	As func(name string) *rest.Config
	// Scheduler reaches this server as kube-scheduler.
	Scheduler *rest.Config
	// Informers are the server's. Run starts them; starting them here does nothing.
	Informers informers.SharedInformerFactory
	// Selected returns informers of the objects that a field selector matches, for a resource with too many objects to hold all.
	Selected func(fields.Selector) informers.SharedInformerFactory
	// Metadata are informers of any resource, of metadata where no controller needs more.
	Metadata informerfactory.InformerFactory
	// Kinds maps kinds to resources.
	Kinds *restmapper.DeferredDiscoveryRESTMapper
	// Started is closed when the event handlers of all controllers are registered and informers run.
	Started chan struct{}
	Cluster Cluster
}

// Cluster is what controllers that set up nodes need to know about the cluster.
type Cluster struct {
	// CACertFile and CAKeyFile are the authority that signs the certificates of clients and kubelets.
	CACertFile, CAKeyFile string
}

const suffix = "-controller"

// internal converts the controller to the type of this package's own.
func (c Controller) internal() controller {
	return controller{
		name: strings.TrimSuffix(c.Name, suffix), aliases: c.Aliases, other: true, off: c.Off, awaits: c.Awaits,
		build: func(ctx context.Context, s *runState, _ clients) (func(context.Context), error) {
			return c.Build(ctx, Shared{
				As: s.config.as, Scheduler: s.config.LoopbackOf(user.KubeScheduler), Informers: s.shared, Metadata: s.metadata, Kinds: s.mapper,
				Selected: s.selected, Started: s.started, Cluster: s.config.Cluster,
			})
		},
	}
}

// known returns all controllers. The garbage collector and the quota controller come after those that have informers of whole
// objects, to share these.
func (c Config) known() []controller {
	known := make([]controller, 0, len(c.Others)+len(all))
	for _, other := range c.Others {
		known = append(known, other.internal())
	}
	return append(known, all...)
}
