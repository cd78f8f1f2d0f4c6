package simnodes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"golang.org/x/sync/errgroup"
)

// leaseSeconds is a kubelet's nodeLeaseDurationSeconds.
const leaseSeconds = 40

// node is one of the nodes. Its fields belong to the goroutine that works on it, except silent.
type node struct {
	name   string
	ip     string
	client kubernetes.Interface

	silent   bool // guarded by Nodes.mu
	timer    *time.Timer
	failures int
	renewed  time.Time
	reported time.Time
}

// register creates the Nodes and their Leases, or takes them over.
func (n *Nodes) register() error {
	names := n.options.Names
	if len(names) == 0 {
		var err error
		if names, err = n.readyNodes(); err != nil {
			return err
		}
	}
	for _, name := range names {
		if n.nodes[name] != nil {
			return fmt.Errorf("two nodes are named %s", name)
		}
		if err := n.add(name, ""); err != nil {
			return err
		}
	}
	if n.options.PodsOnly {
		return n.adopt()
	}
	version, err := n.client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	n.version = version.GitVersion
	if err := n.serve(); err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(workers)
	for _, node := range n.nodes {
		group.Go(func() error { return n.registerNode(node) })
	}
	return group.Wait()
}

// add adds a node with its address, or one that no other node has.
func (n *Nodes) add(name, ip string) error {
	added := &node{name: name, client: n.client}
	if n.options.As != nil {
		client, err := newClient(n.options.As(name))
		if err != nil {
			return err
		}
		added.client = client
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := map[string]bool{}
	for _, other := range n.nodes {
		taken[other.ip] = true
	}
	at := hashOf(name)
	for taken[nodeIP(at)] {
		at++
	}
	added.ip = cmp.Or(ip, nodeIP(at))
	n.nodes[name] = added
	return nil
}

// get returns a node, and whether it reports anything.
func (n *Nodes) get(name string) (found *node, reports bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	found = n.nodes[name]
	return found, found != nil && !found.silent
}

// adopt reads the addresses of nodes that something else reports.
func (n *Nodes) adopt() error {
	for _, node := range n.nodes {
		existing, err := n.client.CoreV1().Nodes().Get(n.ctx, node.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.ip = cmp.Or(internalIP(existing), node.ip)
	}
	return nil
}

// internalIP returns the first address of a node inside of its cluster, or "".
func internalIP(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}

func (n *Nodes) registerNode(node *node) error {
	now := time.Now()
	if n.options.Keep {
		return n.keepNode(node, now)
	}
	labels := map[string]string{corev1.LabelHostname: node.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}
	maps.Copy(labels, n.options.Labels)
	status, _ := n.nodeStatus(node, &corev1.Node{}, now)
	_, err := node.client.CoreV1().Nodes().Create(n.ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: node.name, Labels: labels}, Spec: corev1.NodeSpec{Taints: n.options.Taints}, Status: status,
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var existing *corev1.Node
		if existing, err = n.client.CoreV1().Nodes().Get(n.ctx, node.name, metav1.GetOptions{}); err == nil {
			status, _ = n.nodeStatus(node, existing, now)
			err = n.report(node, status, now)
		}
	}
	if err != nil {
		return err
	}
	node.reported = now
	return n.renew(node, now)
}

// nodeIP returns an address in 198.18.0.0/15, which is for tests.
func nodeIP(i uint32) string {
	return netip.AddrFrom4([4]byte{198, 18 + byte(i>>16&1), byte(i >> 8), byte(i)}).String()
}

func hashOf(text string) uint32 {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(text)) // never fails
	return hash.Sum32()
}

// healthy are the conditions of a node that lacks nothing.
var healthy = []corev1.NodeCondition{
	{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
	{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
	{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
	{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
}

// nodeStatus returns what the node reports, and whether its Node says something else.
func (n *Nodes) nodeStatus(node *node, was *corev1.Node, now time.Time) (status corev1.NodeStatus, changed bool) {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	maps.Copy(room, n.options.Capacity)
	status = corev1.NodeStatus{
		Capacity: room, Allocatable: room,
		// The port for logs is at InternalDNS, which API servers prefer to InternalIP, so that each node has its own InternalIP. They would
		// prefer Hostname, which can't be resolved.
		Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalDNS, Address: n.port.host}, {Type: corev1.NodeInternalIP, Address: node.ip}},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: n.port.number}},
		NodeInfo: corev1.NodeSystemInfo{
			KubeletVersion: n.version, OperatingSystem: "linux", Architecture: "amd64", ContainerRuntimeVersion: "simnodes://1", OSImage: "simulated",
		},
	}
	if n.options.Keep {
		return n.keptStatus(status, was, now)
	}
	before := map[corev1.NodeConditionType]corev1.NodeCondition{}
	for _, condition := range was.Status.Conditions {
		before[condition.Type] = condition
	}
	for _, condition := range healthy {
		condition.LastHeartbeatTime, condition.LastTransitionTime = metav1.NewTime(now), before[condition.Type].LastTransitionTime
		if before[condition.Type].Status != condition.Status {
			condition.LastTransitionTime, changed = condition.LastHeartbeatTime, true
		}
		status.Conditions = append(status.Conditions, condition)
	}
	return status, changed
}

func (n *Nodes) report(node *node, status corev1.NodeStatus, now time.Time) error {
	patch, err := json.Marshal(corev1.Node{Status: status})
	if err != nil {
		return err
	}
	if _, err := node.client.CoreV1().Nodes().PatchStatus(n.ctx, node.name, patch); err != nil {
		return err
	}
	node.reported = now
	return nil
}

// renew renews the node's Lease, or creates it.
func (n *Nodes) renew(node *node, now time.Time) error {
	leases := node.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	renewed := metav1.NewMicroTime(now)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"renewTime": renewed, "holderIdentity": node.name}})
	if err != nil {
		return err
	}
	_, err = leases.Patch(n.ctx, node.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(n.ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: node.name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node.name, LeaseDurationSeconds: new(int32(leaseSeconds)), RenewTime: &renewed},
		}, metav1.CreateOptions{})
	}
	if err == nil {
		node.renewed = now
	}
	return err
}

// observe works on a node whose Node says that it is not ready, as a kubelet corrects that.
func (n *Nodes) observe(object any) {
	stored, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	if _, reports := n.get(stored.Name); !reports {
		return
	}
	for _, condition := range stored.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return
		}
	}
	n.queue.Add(key{node: true, name: stored.Name})
}

// syncNode renews the node's Lease and reports its status if they are due, or if the status has changed.
func (n *Nodes) syncNode(k key) {
	node, reports := n.get(k.name)
	if !reports || n.options.PodsOnly || n.ctx.Err() != nil {
		return
	}
	now := time.Now()
	err := n.beat(node, now)
	wait := max(node.renewed.Add(n.options.LeaseInterval).Sub(now), 0)
	if node.failures++; err == nil {
		node.failures = 0
	} else {
		wait = n.retry(node.failures, fmt.Errorf("the Lease and status of Node %s: %w", node.name, err))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if stopTimer(node.timer); n.ctx.Err() == nil && !node.silent {
		node.timer = time.AfterFunc(wait, func() { n.queue.Add(k) })
	}
}

func (n *Nodes) beat(node *node, now time.Time) error {
	object, ok, err := n.stored.GetByKey(node.name)
	if err != nil || !ok { // a kubelet does not create its Node again
		node.renewed = now
		return err
	}
	if !now.Before(node.renewed.Add(n.options.LeaseInterval)) {
		if err := n.renew(node, now); err != nil {
			return err
		}
	}
	status, changed := n.nodeStatus(node, object.(*corev1.Node), now)
	if !changed && now.Before(node.reported.Add(n.options.StatusInterval)) {
		return nil
	}
	if err := n.report(node, status, now); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// Alive reports whether there is a node of that name that is not silent.
func (n *Nodes) Alive(name string) bool {
	_, reports := n.get(name)
	return reports
}

// Silence stops a node from sending anything, as when it loses power or its network: after a while it is tainted, and its Pods are
// evicted. Its containers run on. It panics if there is no node of that name.
func (n *Nodes) Silence(name string) { n.setSilent(name, true) }

// Return ends Silence: the node reports what has happened, and removes Pods that have been deleted.
func (n *Nodes) Return(name string) { n.setSilent(name, false) }

func (n *Nodes) setSilent(name string, silent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.nodes[name]
	if node == nil {
		panic(fmt.Sprintf("simnodes: there is no node %s", name))
	}
	if node.silent = silent; silent {
		stopTimer(node.timer)
		return
	}
	n.queue.Add(key{node: true, name: name})
	for _, object := range n.pods.List() {
		if pod := object.(*corev1.Pod); pod.Spec.NodeName == name {
			n.enqueuePod(pod)
		}
	}
}
