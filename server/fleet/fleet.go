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
	"runtime"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
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
	// Ready is called when a cluster has woken up, before it answers. What it starts ends with ctx. Optional.
	Ready func(ctx context.Context, c *v1alpha1.Cluster, o *server.Options, s *server.Server) error
	// Domain is that of the clusters' host names: NAME.NAMESPACE.DOMAIN. Empty for none.
	Domain string
}

// Fleet implements server.Fleet.
type Fleet struct {
	config   Config
	turns    *turns
	alarms   *alarms
	queue    queue
	settling *turns                                                          // of clusters that have woken up
	boot     func(context.Context, *running) (ended <-chan error, err error) // wakes a cluster; nil except in tests

	mu       sync.RWMutex
	clusters map[types.NamespacedName]*cluster
	members  map[types.NamespacedName]map[*cluster]bool // of each pool
	host     *server.Server                             // nil until Run
	client   *rest.RESTClient
	core     kubernetes.Interface
	sealer   *sharedkeys.Sealer
	guard    *guard
	seats    seats
	names    names
	began    sync.Once
	hosting  chan struct{} // closed when the clusters are known
	peers    *peers        // nil if no other server uses the database
	stopping chan struct{} // closed when no cluster wakes up any more
	events   chan *corev1.Event
	claimed  *claims
}

// New returns a fleet of no clusters.
func New(c Config) *Fleet {
	// A panic in a goroutine of upstream's is logged, and ends what it did; what repeats goes on. Otherwise it would end all clusters.
	utilruntime.ReallyCrash = false
	return &Fleet{
		config: c, names: newNames(c.Domain), clusters: map[types.NamespacedName]*cluster{}, members: map[types.NamespacedName]map[*cluster]bool{},
		seats: newSeats(), turns: newTurns(max(2, runtime.GOMAXPROCS(0))), settling: newTurns(1), alarms: newAlarms(), queue: newQueue(),
		hosting: make(chan struct{}), stopping: make(chan struct{}), events: make(chan *corev1.Event, maxEvents), claimed: newClaims(),
	}
}

// Run implements server.Fleet.
func (f *Fleet) Run(ctx context.Context, host *server.Server) error {
	loopback := host.Loopback(fleetUser, "system:masters")
	var err error
	if f.client, err = newClient(loopback); err != nil {
		return err
	}
	if f.core, err = kubernetes.NewForConfig(loopback); err != nil {
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
	peers, err := f.join(ctx, host)
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.host, f.peers = host, peers
	f.mu.Unlock()
	f.guard = newGuard(host, newPasses(secret))
	defer registered.add(f)()
	serving, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(host.Serving(), stop) // clusters end when the host drains, before its own connections do
	var running sync.WaitGroup
	running.Go(func() { f.alarms.run(serving) })
	running.Go(func() { f.reconcileAll(serving) })
	running.Go(func() { f.sendEvents(serving) })
	<-serving.Done()
	close(f.stopping)
	f.stopAll(context.WithoutCancel(ctx)) // each bounds that itself
	running.Wait()
	return nil
}

// stopAll puts all clusters to sleep, as many at once as there are, and writes it to their statuses.
func (f *Fleet) stopAll(ctx context.Context) {
	f.mu.Lock()
	var stopping sync.WaitGroup
	for _, c := range f.clusters {
		if c.current() == nil {
			continue
		}
		stopping.Go(func() {
			c.stop(ctx)
			writing, cancel := context.WithTimeout(ctx, statusTimeout)
			defer cancel()
			for {
				err := f.writeNews(writing, c)
				if !apierrors.IsConflict(err) {
					logFailure("writing the status of a cluster failed", c.name, err)
					return
				}
			}
		})
	}
	f.mu.Unlock()
	stopping.Wait()
}

// stops reports whether no cluster wakes up any more.
func (f *Fleet) stops() bool {
	select {
	case <-f.stopping:
		return true
	default:
		return false
	}
}

// find returns a cluster, nil if there is none.
func (f *Fleet) find(name types.NamespacedName) *cluster {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.clusters[name]
}

// known returns the cluster of an object, which it adds to the registry. If that has a newer one of its name, it returns nil.
func (f *Fleet) known(o *v1alpha1.Cluster) *cluster {
	name := nameOf(o)
	version, _ := strconv.ParseInt(o.ResourceVersion, 10, 64) // never fails
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.clusters[name]
	switch {
	case c != nil && c.version > version && c.uid != o.UID:
		return nil
	case c != nil && c.version > version:
		return c
	case c != nil && c.uid != o.UID: // of the other one, only the database is left
		f.leavePool(c)
		go f.lose(context.Background(), c)
		c = nil
	}
	if c == nil {
		c = &cluster{fleet: f, name: name, uid: o.UID, id: o.Annotations[v1alpha1.DatabaseAnnotation]}
		f.clusters[name] = c
	}
	c.version = version
	c.identify(o)
	f.joinPool(c, o)
	if f.peers != nil && o.Status.Phase == v1alpha1.PhaseAwake && !c.runs(0) { // on another server
		c.unpark()
	}
	return c
}

// hosts returns the server that hosts the clusters, nil before it is ready.
func (f *Fleet) hosts() *server.Server {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.host
}

// others are the other servers, once this one knows the clusters.
func (f *Fleet) others() *peers {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.peers
}

// forget removes a cluster from the registry.
func (f *Fleet) forget(c *cluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clusters[c.name] == c {
		delete(f.clusters, c.name)
	}
	f.leavePool(c)
}

// url is where clients reach a cluster.
func (f *Fleet) url(name types.NamespacedName) string {
	return f.host.ExternalURL() + PathPrefix + name.Namespace + "/" + name.Name
}
