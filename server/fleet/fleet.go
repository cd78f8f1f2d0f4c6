// Package fleet hosts clusters: each is a database of its own, which a server of its own serves while somebody needs it.
//
//	client ──► Fleet.Door ──┬─► the host's filters ──► Clusters, ClusterPools, subresources
//	                        └─► cluster.enter ──► server.Server of the cluster ──► its database
//	                                 │ wakes it             │ falls asleep when nobody asks
//	reconciler ──► Databases ◄───────┴──────────────────────┘
//
// The clusters are objects of the host: package v1alpha1 has their API. A cluster that sleeps is an entry of the registry and its database.
package fleet

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore"
)

// PathPrefix is that of the paths of clusters: /clusters/NAMESPACE/NAME.
const PathPrefix = "/clusters/"

// Config configures a fleet.
type Config struct {
	Databases Databases
	// Options returns options of a server for a cluster, with the defaults of the host.
	Options func(*v1alpha1.Cluster) (*server.Options, sqlstore.Options, error)
	// Domain is that of the clusters' host names: NAME.NAMESPACE.DOMAIN. Empty for none.
	Domain string
}

// Fleet implements server.Fleet.
type Fleet struct {
	config Config
	waking chan struct{} // holds a value for each cluster that is waking up

	mu       sync.RWMutex
	clusters map[types.NamespacedName]*cluster
	host     *server.Server // nil until Run
	client   *rest.RESTClient
	sealer   *sharedkeys.Sealer
	guard    *guard
	names    names
	hosting  chan struct{} // closed when the clusters are known
	naps     *naps
}

// New returns a fleet of no clusters.
func New(c Config) *Fleet {
	return &Fleet{config: c, names: newNames(c.Domain), clusters: map[types.NamespacedName]*cluster{}, hosting: make(chan struct{}),
		waking: make(chan struct{}, max(2, runtime.GOMAXPROCS(0))), naps: newNaps()}
}

// Run implements server.Fleet.
func (f *Fleet) Run(ctx context.Context, host *server.Server) error {
	var err error
	if f.client, err = newClient(host.Loopback("system:sqube:fleet", "system:masters")); err != nil {
		return err
	}
	secret, err := secretOf(ctx, host.Store())
	if err != nil {
		return err
	}
	if f.sealer, err = sharedkeys.NewSealer(secret); err != nil {
		return err
	}
	if err := installDefinitions(ctx, host); err != nil {
		return err
	}
	f.mu.Lock()
	f.host = host
	f.mu.Unlock()
	f.guard = newGuard(host, newPasses(secret))
	serving, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(host.Serving(), stop) // clusters end when the host drains, before its own connections do
	var running sync.WaitGroup
	running.Go(func() { f.naps.run(serving) })
	running.Go(func() { newReconciler(f).run(serving) })
	<-serving.Done()
	running.Wait()
	f.stopAll(context.WithoutCancel(ctx)) // each bounds that itself
	return nil
}

// stopAll puts all clusters to sleep, as many at once as there are.
func (f *Fleet) stopAll(ctx context.Context) {
	f.mu.Lock()
	var stopping sync.WaitGroup
	for _, c := range f.clusters {
		stopping.Go(func() { c.stop(ctx) })
	}
	f.mu.Unlock()
	stopping.Wait()
}

// find returns a cluster, nil if there is none.
func (f *Fleet) find(name types.NamespacedName) *cluster {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.clusters[name]
}

// known returns the cluster of an object, which it adds to the registry.
func (f *Fleet) known(o *v1alpha1.Cluster) *cluster {
	name := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.clusters[name]
	if c == nil {
		c = &cluster{fleet: f, name: name}
		f.clusters[name] = c
	}
	c.identify(o)
	return c
}

// forget removes a cluster from the registry.
func (f *Fleet) forget(name types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.clusters, name)
}

// url is where clients reach a cluster.
func (f *Fleet) url(name types.NamespacedName) string {
	return f.host.ExternalURL() + PathPrefix + name.Namespace + "/" + name.Name
}

// idle is for how long nobody has requested anything when a cluster falls asleep, unless it says otherwise.
const idle = 5 * time.Minute

func logFailure(what string, name types.NamespacedName, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		slog.Error(what, "cluster", name.String(), "error", err)
	}
}
