package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

// cluster has the clients of a server with a control plane: an administrator and simulated nodes.
type cluster struct {
	kubernetes.Interface // of the administrator
	calls                callTimes
	failed               atomic.Int64 // requests of nodes that failed for good
	starts               *podStarts

	// So far:
	joined, namespaces, deployed int
	churned                      int // operations on Deployments

	background context.Context // of the nodes and the watch
	stop       context.CancelFunc
	nodes      sync.WaitGroup
}

// openCluster creates the clients. If there are several servers, a client fails over when its own is gone.
func (s *session) openCluster(ctx context.Context) error {
	klog.SetLogger(logr.Discard()) // clients retry; final failures are recorded
	admin, err := s.adminClient()
	if err != nil {
		return err
	}
	c := &cluster{Interface: admin}
	c.background, c.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.cluster = c
	watcher, err := s.node(0, s.dialer.config.BearerToken).dial(ctx)
	if err != nil {
		return err
	}
	c.starts, err = watchStarts(c.background, watcher)
	return err
}

// adminClient returns the administrator's client.
func (s *session) adminClient() (kubernetes.Interface, error) {
	config := rest.CopyConfig(s.dialer.config)
	config.QPS = -1
	config.ContentType, config.AcceptContentTypes = mediaProtobuf, mediaProtobuf+","+mediaJSON
	config.Dial = failover(s.server.Addresses, s.dialer.received)
	return kubernetes.NewForConfig(config)
}

// node returns the dialer of a numbered node with that token, which prefers one of the servers.
func (s *session) node(number int, token string) *dialer {
	addresses := s.server.Addresses
	first := number % len(addresses)
	return s.dialer.as(token, slices.Concat(addresses[first:], addresses[:first]))
}

// failover returns a dial function that tries the addresses in order. What its connections receive is added to received.
func failover(addresses []string, received *atomic.Int64) func(ctx context.Context, network, _ string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (conn net.Conn, err error) {
		var dialer net.Dialer
		for _, address := range addresses {
			if conn, err = dialer.DialContext(ctx, network, address); err == nil {
				return countedConn{conn, received}, nil
			}
		}
		return nil, err
	}
}

// countedConn counts the bytes that it receives.
type countedConn struct {
	net.Conn
	received *atomic.Int64
}

// Read reads from the connection.
func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// joinClients is how many nodes register at once.
const joinClients = 8

// join adds nodes until there are that many, and waits until all are ready.
func (s *session) join(ctx context.Context, nodes int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var joining sync.WaitGroup
	for range joinClients {
		joining.Go(func() {
			for i := range next {
				if err := s.joinNode(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for ; s.cluster.joined < nodes && ctx.Err() == nil; s.cluster.joined++ {
		next <- s.cluster.joined
	}
	close(next)
	joining.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return until(ctx, fmt.Sprintf("%d nodes are ready", nodes), func() (bool, error) {
		list, err := s.cluster.CoreV1().Nodes().List(ctx, listCached)
		if err != nil {
			return false, err
		}
		ready := 0
		for i := range list.Items {
			if isReady(&list.Items[i]) && len(list.Items[i].Spec.Taints) == 0 {
				ready++
			}
		}
		return ready == nodes, nil
	})
}

// joinNode adds a node.
func (s *session) joinNode(ctx context.Context, i int) error {
	token := s.dialer.config.BearerToken
	if s.server.access.nodes > 0 {
		token = s.server.access.nodeToken(i)
	}
	c, err := s.node(i, token).dial(ctx)
	if err != nil {
		return err
	}
	k := &kubelet{client: c, name: nodeName(i), calls: &s.cluster.calls, failed: &s.cluster.failed, running: map[string]struct{}{}}
	if err := k.register(ctx); err != nil {
		return fmt.Errorf("registering Node %s: %w", k.name, err)
	}
	s.cluster.nodes.Go(func() { k.run(s.cluster.background) })
	return nil
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// close stops the nodes and the watch, and waits for their end. Closing twice is harmless.
func (c *cluster) close() {
	if c != nil {
		c.stop()
		c.nodes.Wait()
		c.starts.stopped()
	}
}

// perNamespace is the maximum number of Deployments in a namespace.
const perNamespace = 10

// deployment is the name of a numbered Deployment.
type deployment struct{ namespace, name string }

func deploymentOf(i int) deployment {
	return deployment{fmt.Sprintf("bench-%d", i/perNamespace), fmt.Sprintf("shop-%d", i)}
}

// selected are the labels of its Pods.
func (d deployment) selected() map[string]string { return map[string]string{"app": d.name} }

// makeNamespaces creates the namespaces of Deployments, and waits until Pods can be created there.
func (c *cluster) makeNamespaces(ctx context.Context, deployments int) error {
	for ; c.namespaces*perNamespace < deployments; c.namespaces++ {
		name := deploymentOf(c.namespaces * perNamespace).namespace
		if err := persist(ctx, func() error {
			_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
		if err := until(ctx, "the namespace has its service account", func() (bool, error) {
			_, err := c.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
			return err == nil, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// deploy creates a Deployment, whose Pods run on the node if one is named, and are scheduled otherwise.
func (c *cluster) deploy(ctx context.Context, i, replicas int, node string) error {
	d, count := deploymentOf(i), int32(replicas)
	pod := podTemplate()
	pod.Labels["app"], pod.Spec.NodeName = d.name, node
	delete(pod.Labels, "pod-template-hash") // the Deployment's own
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: d.name, Labels: d.selected()},
		Spec: appsv1.DeploymentSpec{
			Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: d.selected()},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		},
	}
	return persist(ctx, func() error {
		_, err := c.AppsV1().Deployments(d.namespace).Create(ctx, deployment, metav1.CreateOptions{})
		return err
	})
}

// expose creates a Service that selects a Deployment's Pods.
func (c *cluster) expose(ctx context.Context, i int) error {
	d := deploymentOf(i)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: d.name, Labels: d.selected()},
		Spec: corev1.ServiceSpec{
			Selector: d.selected(), Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromString("http")}},
		},
	}
	return persist(ctx, func() error {
		_, err := c.CoreV1().Services(d.namespace).Create(ctx, service, metav1.CreateOptions{})
		return err
	})
}

// patch changes a Deployment by a patch that may be sent more than once.
func (c *cluster) patch(ctx context.Context, i int, patch string) error {
	d := deploymentOf(i)
	return persist(ctx, func() error {
		_, err := c.AppsV1().Deployments(d.namespace).Patch(ctx, d.name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// restart makes a Deployment replace its Pods, like kubectl rollout restart.
func (c *cluster) restart(ctx context.Context, i int) error {
	return c.patch(ctx, i, fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":%q}}}}}`, time.Now().Format(time.RFC3339Nano)))
}

func (c *cluster) resize(ctx context.Context, i, replicas int) error {
	return c.patch(ctx, i, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// settled waits until all Deployments have their replicas, and their Pods were seen running.
func (c *cluster) settled(ctx context.Context, pods int) error {
	return until(ctx, "all Deployments have their replicas", func() (bool, error) {
		if running, waiting := c.starts.counts(); running != pods || waiting > 0 {
			return false, fmt.Errorf("%d Pods run and %d wait, of %d", running, waiting, pods)
		}
		list, err := c.AppsV1().Deployments("").List(ctx, listCached)
		if err != nil {
			return false, err
		}
		for i := range list.Items {
			d := &list.Items[i]
			if d.Status.ObservedGeneration != d.Generation || d.Status.ReadyReplicas != *d.Spec.Replicas || d.Status.UpdatedReplicas != *d.Spec.Replicas {
				return false, fmt.Errorf("%s/%s: %+v", d.Namespace, d.Name, d.Status)
			}
		}
		return true, nil
	})
}

// paced waits for as long as that many Pods take to start or end at a pace per second. next is the start of that time.
func paced(ctx context.Context, next *time.Time, pods, pace int) error {
	*next = next.Add(time.Duration(pods) * time.Second / time.Duration(pace))
	return wait(ctx, time.Until(*next))
}

// scheduledOf is of how many Deployments one has Pods that are scheduled, restarted and resized.
const scheduledOf = 10

// churn restarts and resizes such Deployments, of the first ones, in turn until the end, at a pace of Pods per second.
func (c *cluster) churn(ctx context.Context, n sizes, end time.Time) error {
	scheduled, half := (n.deployments()+scheduledOf-1)/scheduledOf, n.Replicas/2
	next := time.Now()
	for time.Now().Before(end) {
		i, j := c.churned%scheduled*scheduledOf, (c.churned+scheduled/2)%scheduled*scheduledOf
		c.churned++
		for _, step := range []struct {
			pods int
			do   func() error
		}{
			{n.Replicas, func() error { return c.restart(ctx, i) }},
			{half, func() error { return c.resize(ctx, j, n.Replicas-half) }},
			{half, func() error { return c.resize(ctx, j, n.Replicas) }},
		} {
			if err := step.do(); err != nil {
				return err
			}
			if err := paced(ctx, &next, step.pods, n.Pace); err != nil {
				return err
			}
		}
	}
	return nil
}

// deployments is how many Deployments there are.
func (s sizes) deployments() int { return max(1, s.Pods/s.Replicas) }

// sorted returns the durations in order.
func sorted(times []time.Duration) []time.Duration {
	slices.Sort(times)
	return times
}

// browse lists pods until the context ends, as people and programs do in addition to nodes and controllers: in each interval those of
// one namespace as kubectl does, and in every sixth all, in one answer.
func (c *cluster) browse(ctx context.Context, client *client, interval time.Duration) {
	defer clients{client}.close()
	for n := 0; wait(ctx, interval) == nil; n++ {
		r := get(fmt.Sprintf("/api/v1/namespaces/%s/pods?limit=500", deploymentOf(n%5*perNamespace).namespace)).as(mediaTable)
		if n%6 == 5 {
			r = get("/api/v1/pods").as(mediaProtobuf)
		}
		if _, err := client.discard(ctx, r); err != nil && ctx.Err() == nil {
			progress("listing pods: %v", err)
		}
	}
}

// podStarts watches all Pods and times their starts as in Kubernetes' SLO: from their creation until a watch reports them
// Running. A creationTimestamp has whole seconds, so a start seems to take up to a second longer than it does. A Pod that is
// deleted before it runs counts with its age.
type podStarts struct {
	watch sync.WaitGroup

	mu      sync.Mutex
	waiting map[string]time.Time // creation times of those not running yet, by uid
	started map[string]struct{}
	before  map[string]struct{} // those that had started when the watch began again
	times   []time.Duration     // since the last take
	after   time.Time           // if not zero, first is closed when a Pod created later runs
	first   chan struct{}
}

// watchStarts watches until the context ends.
func watchStarts(ctx context.Context, c *client) (*podStarts, error) {
	p := &podStarts{}
	p.restart()
	synced := make(chan struct{})
	var once sync.Once
	p.watch.Go(func() {
		c.follow(ctx, "/api/v1/pods", "", p.see, p.restart, func() { once.Do(func() { close(synced) }) })
		clients{c}.close()
	})
	select {
	case <-synced:
		return p, nil
	case <-time.After(readyTimeout):
		return nil, errors.New("the watch of all pods did not begin")
	}
}

// stopped waits until the watch has ended.
func (p *podStarts) stopped() {
	if p != nil {
		p.watch.Wait()
	}
}

// restart forgets which Pods exist: the watch begins again with those that do.
func (p *podStarts) restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = p.started
	p.waiting, p.started = map[string]time.Time{}, map[string]struct{}{}
}

func (p *podStarts) see(pod seen) {
	uid := pod.uid()
	p.mu.Lock()
	defer p.mu.Unlock()
	_, started := p.started[uid]
	switch created, waits := p.waiting[uid]; {
	case pod.kind == "DELETED":
		if waits {
			p.times = append(p.times, time.Since(created))
		}
		delete(p.waiting, uid)
		delete(p.started, uid)
	case started:
	case pod.phase() != "Running":
		p.waiting[uid] = time.Unix(pod.created(), 0)
	default:
		p.start(uid, time.Unix(pod.created(), 0))
	}
}

func (p *podStarts) start(uid string, created time.Time) {
	delete(p.waiting, uid)
	p.started[uid] = struct{}{}
	if _, before := p.before[uid]; before {
		return
	}
	p.times = append(p.times, time.Since(created))
	if p.first != nil && created.After(p.after) {
		close(p.first)
		p.first = nil
	}
}

// counts returns how many Pods are running, and how many exist that are not.
func (p *podStarts) counts() (running, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.started), len(p.waiting)
}

// take returns the durations of starts since the last call.
func (p *podStarts) take() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	times := p.times
	p.times = nil
	return times
}

// firstAfter returns a channel that is closed when a Pod created after the time runs.
func (p *podStarts) firstAfter(after time.Time) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after, p.first = after, make(chan struct{})
	return p.first
}
