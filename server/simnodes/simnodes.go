package simnodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Options are the nodes and what happens on them.
type Options struct {
	// Names of the nodes. If there are none, Count nodes (by default one) are named node-0, node-1 and so on. Nodes that exist are taken over,
	// with their labels and taints.
	Names []string
	Count int
	// Labels and Taints of the nodes. The labels kubernetes.io/hostname, os and arch are added.
	Labels map[string]string
	Taints []corev1.Taint
	// Capacity of each node, which is allocatable. What it leaves out is 32 CPUs, 256Gi of memory and 110 Pods.
	Capacity corev1.ResourceList
	// Keep lets a copy of a real cluster go on as it was. Without Names, the nodes are those that exist and are ready, and those that are created
	// later. They keep what they have said about themselves. A node whose Node is deleted is gone. Pods that the nodes have had keep their
	// states, and new ones take their time: see the package's documentation.
	Keep bool
	// Scripts say what containers do. The default is good for Pods that have nothing to do: see Script.
	Scripts []Script

	// PodsOnly simulates only the Pods of nodes that exist: something else reports the nodes' status and serves their logs.
	PodsOnly bool

	// LeaseInterval is how often the nodes renew their Leases, by default every 10 s as kubelets do. Nodes whose Leases
	// kube-controller-manager has not seen renewed for 50 s (--node-monitor-grace-period) are tainted.
	LeaseInterval time.Duration
	// StatusInterval is how often the nodes report their status if nothing has changed, by default every 5 minutes.
	StatusInterval time.Duration

	// As returns the configuration with which a node reports. By default, that of Join.
	As func(node string) *rest.Config

	// Listen opens the port at which API servers get logs. The default is net.Listen.
	Listen func(network, address string) (net.Listener, error)
	// Failed is called when something has failed several times and is retried. Optional. It is called from several goroutines.
	Failed func(error)
}

// workers is how many Pods and nodes are worked on at once.
const workers = 8

// Nodes are simulated nodes. Its methods may be called from several goroutines.
type Nodes struct {
	client  kubernetes.Interface
	options Options
	version string // of the kubelets
	port    kubeletPort

	ctx     context.Context
	cancel  context.CancelFunc
	working sync.WaitGroup
	stop    func()

	queue  workqueue.TypedInterface[key]
	pods   cache.Indexer
	stored cache.Store // Nodes

	mu        sync.Mutex
	nodes     map[string]*node
	fates     map[string]*fate // of containers that were there at first, by what new ones have in common with them
	scripts   []*scripted
	whole     map[string]bool      // the copy has all secrets, and configmaps
	lives     map[string]*podState // by namespace/name
	addresses uint32               // that Pods have got
}

// key is something to work on.
type key struct {
	node bool
	name string // of a node, or namespace/name of a Pod
}

// Join creates the nodes and lets them run the Pods bound to them, until ctx ends or Stop is called. It returns when the nodes are
// ready. The client needs the permissions of a kubelet, for all Pods and nodes unless there is one.
func Join(ctx context.Context, config *rest.Config, o Options) (_ *Nodes, err error) {
	client, err := newClient(config)
	if err != nil {
		return nil, err
	}
	n := &Nodes{client: client, options: o.withDefaults(), nodes: map[string]*node{}, lives: map[string]*podState{}, queue: workqueue.NewTyped[key]()}
	if err := n.Add(o.Scripts...); err != nil {
		return nil, err
	}
	n.ctx, n.cancel = context.WithCancel(ctx)
	n.stop = sync.OnceFunc(n.end)
	if err := n.run(); err != nil {
		n.stop()
		return nil, err
	}
	context.AfterFunc(n.ctx, n.stop)
	return n, nil
}

func newClient(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.AddUserAgent(rest.CopyConfig(config), "simnodes")
	config.QPS = -1
	return kubernetes.NewForConfig(config)
}

func (o Options) withDefaults() Options {
	if len(o.Names) == 0 && !o.Keep {
		for i := range max(o.Count, 1) {
			o.Names = append(o.Names, fmt.Sprintf("node-%d", i))
		}
	}
	o.LeaseInterval, o.StatusInterval = cmp.Or(o.LeaseInterval, 10*time.Second), cmp.Or(o.StatusInterval, 5*time.Minute)
	if o.Listen == nil {
		o.Listen = net.Listen
	}
	return o
}

// run registers the nodes and starts everything.
func (n *Nodes) run() error {
	if err := n.register(); err != nil {
		return err
	}
	ofNode, named := n.selectors()
	pods := informers.NewFilteredPodInformer(n.client, metav1.NamespaceAll, 0, cache.Indexers{byAddress: addressesOf}, ofNode)
	nodes := informers.NewFilteredNodeInformer(n.client, 0, cache.Indexers{}, named)
	n.pods, n.stored = pods.GetIndexer(), nodes.GetStore()
	_, handled := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: n.enqueuePod, UpdateFunc: func(_, pod any) { n.enqueuePod(pod) }, DeleteFunc: n.enqueuePod,
	})
	_, observed := nodes.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: n.appear, UpdateFunc: func(_, node any) { n.observe(node) }, DeleteFunc: n.disappear,
	})
	if err := errors.Join(pods.SetTransform(slim), nodes.SetTransform(slim), handled, observed); err != nil {
		return err
	}
	n.working.Go(func() { pods.RunWithContext(n.ctx) })
	n.working.Go(func() { nodes.RunWithContext(n.ctx) })
	if !cache.WaitForCacheSync(n.ctx.Done(), pods.HasSynced, nodes.HasSynced) {
		return n.ctx.Err()
	}
	if n.options.Keep {
		pods := n.pods.List()
		n.fates = fatesOf(pods, time.Now())
		var err error
		if n.whole, err = n.wholeOf(pods); err != nil {
			return err
		}
	}
	for range workers {
		n.working.Go(func() {
			for n.next() {
			}
		})
	}
	for _, name := range n.Names() {
		n.queue.Add(key{node: true, name: name})
	}
	return nil
}

// selectors select the Pods of the nodes and the nodes. The permissions of a kubelet suffice for those of a single one.
func (n *Nodes) selectors() (pods, nodes func(*metav1.ListOptions)) {
	if len(n.options.Names) != 1 || n.options.Keep {
		return nil, nil
	}
	equal := func(field string) func(*metav1.ListOptions) {
		return func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(field, n.options.Names[0]).String()
		}
	}
	return equal("spec.nodeName"), equal(metav1.ObjectNameField)
}

// slim drops what nobody reads.
func slim(object any) (any, error) {
	if meta, ok := object.(metav1.Object); ok {
		meta.SetManagedFields(nil)
	}
	return object, nil
}

// Names returns the names of the nodes.
func (n *Nodes) Names() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Sorted(maps.Keys(n.nodes))
}

// Add adds scripts before those that there are. They are for Pods that the nodes get from now on.
func (n *Nodes) Add(scripts ...Script) error {
	var added []*scripted
	for _, script := range scripts {
		checked, err := newScripted(script)
		if err != nil {
			return err
		}
		added = append(added, checked)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.scripts = append(added, n.scripts...)
	return nil
}

// Play lets a running container take steps now, instead of what is left of its run. It fails if the nodes have not started the container.
func (n *Nodes) Play(namespace, pod, container string, steps ...Step) error {
	name := namespace + "/" + pod
	state, c, err := n.find(name, container)
	if err != nil {
		return err
	}
	defer state.mu.Unlock()
	if c.state.Running == nil {
		return fmt.Errorf("the container %q of Pod %q does not run", container, name)
	}
	if err := Run(steps).check(true); err != nil {
		return err
	}
	c.at, c.left = time.Now(), steps
	n.queue.Add(key{name: name})
	return nil
}

// find returns a container that a node has, and what the node knows about its Pod. The caller must unlock that.
func (n *Nodes) find(pod, name string) (*podState, *container, error) {
	n.mu.Lock()
	state := n.lives[pod]
	n.mu.Unlock()
	if state != nil {
		state.mu.Lock()
		for _, c := range state.life.containers {
			if c.spec.Name == name {
				return state, c, nil
			}
		}
		state.mu.Unlock()
	}
	return nil, nil, fmt.Errorf("no node has a container %q of Pod %q", name, pod)
}

// Stop stops the nodes abruptly, like Silence, and returns when all goroutines have ended. The Node objects remain.
func (n *Nodes) Stop() { n.stop() }

func (n *Nodes) end() {
	n.mu.Lock() // no request is counted from here on
	n.cancel()
	n.mu.Unlock()
	n.queue.ShutDown()
	n.port.close()
	n.working.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range n.nodes {
		stopTimer(node.timer)
	}
	for _, pod := range n.lives {
		pod.mu.Lock()
		stopTimer(pod.timer)
		pod.mu.Unlock()
	}
}

func stopTimer(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

// next works on the next Pod or node, and returns false at the end.
func (n *Nodes) next() bool {
	key, shutdown := n.queue.Get()
	if shutdown {
		return false
	}
	defer n.queue.Done(key)
	if key.node {
		n.syncNode(key)
	} else {
		n.syncPod(key)
	}
	return true
}

// What happens when a request fails: the next attempt is later and later, and every fifth is reported.
const (
	retryFirst    = 50 * time.Millisecond
	retryLongest  = 10 * time.Second
	reportedAfter = 5
)

// retry returns when to retry what has failed that many times, and reports the failure.
func (n *Nodes) retry(failures int, err error) time.Duration {
	if failures%reportedAfter == 0 && n.options.Failed != nil && n.ctx.Err() == nil {
		n.options.Failed(err)
	}
	return min(retryFirst<<min(failures, 10), retryLongest)
}
