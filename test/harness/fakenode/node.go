package fakenode

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

// Options describe a node.
type Options struct {
	Name   string
	Labels map[string]string // in addition to those that a kubelet sets
	Taints []corev1.Taint
	CPU    string // cores for Pods; by default 1
	Memory string // for Pods; by default 1Gi

	// LeaseInterval is how often the node renews its Lease, and StatusInterval how often it checks its Node, to report its
	// status if that has changed or was last reported reportInterval ago. The defaults are a kubelet's 10 s.
	LeaseInterval, StatusInterval time.Duration

	// Failed is called when a write has failed as often as a kubelet tries, before it is retried later. It may be nil, and is called
	// from several goroutines.
	Failed func(error)
}

// failed reports a failure.
func (o Options) failed(format string, args ...any) {
	if o.Failed != nil {
		o.Failed(fmt.Errorf(format, args...))
	}
}

// reportInterval is a kubelet's nodeStatusReportFrequency.
const reportInterval = 5 * time.Minute

// attempts is how often a kubelet tries to renew its Lease, or to report its Node's status, in each interval.
const attempts = 5

// jitter is the fraction by which a kubelet's intervals vary.
const jitter = 0.04

// Node is a Node and its simulated kubelet.
type Node struct {
	client  kubernetes.Interface
	options Options

	reported time.Time // when the status was last reported
}

// New returns a node that is not registered yet.
func New(c kubernetes.Interface, o Options) *Node {
	o.CPU, o.Memory = cmp.Or(o.CPU, "1"), cmp.Or(o.Memory, "1Gi")
	o.LeaseInterval, o.StatusInterval = cmp.Or(o.LeaseInterval, 10*time.Second), cmp.Or(o.StatusInterval, 10*time.Second)
	return &Node{client: c, options: o}
}

// Register creates the Node.
func (n *Node) Register(ctx context.Context) error {
	labels := map[string]string{corev1.LabelOSStable: "linux", corev1.LabelHostname: n.options.Name}
	maps.Copy(labels, n.options.Labels)
	_, err := n.client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.options.Name, Labels: labels}, Spec: corev1.NodeSpec{Taints: n.options.Taints},
	}, metav1.CreateOptions{})
	return err
}

// Run simulates the kubelet until the context ends: the Node is ready, its Lease is renewed, and the Pods bound to it run. Then
// it returns without notifying the server, as when the machine loses power.
func (n *Node) Run(ctx context.Context) {
	var loops sync.WaitGroup
	loops.Go(func() { n.renewLease(ctx) })
	loops.Go(func() { wait.JitterUntilWithContext(ctx, n.syncStatus, n.options.StatusInterval, jitter, true) })
	loops.Go(func() { RunPods(ctx, n.client, n.options) })
	loops.Wait()
}

// syncStatus reports the status if it is due. After too many failures, it is retried in the next interval.
func (n *Node) syncStatus(ctx context.Context) {
	var err error
	for attempt := range attempts {
		if err = n.trySyncStatus(ctx, attempt == 0); err == nil || ctx.Err() != nil {
			return
		}
	}
	n.options.failed("reporting the status of Node %s: %w", n.options.Name, err)
}

// trySyncStatus reads the Node, from the server's memory if cached is set, like a kubelet's first attempt, and reports its
// status.
func (n *Node) trySyncStatus(ctx context.Context, cached bool) error {
	var get metav1.GetOptions
	if cached {
		get.ResourceVersion = "0"
	}
	node, err := n.client.CoreV1().Nodes().Get(ctx, n.options.Name, get)
	if err != nil {
		return err
	}
	now := metav1.Now()
	status, changed := n.status(node, now)
	if !changed && now.Sub(n.reported) < reportInterval-n.options.StatusInterval/2 {
		return nil
	}
	if err := patchStatus(ctx, n.client, n.options.Name, status); err != nil {
		return err
	}
	n.reported = now.Time
	return nil
}

// status returns the node's status, and whether that differs from its Node's.
func (n *Node) status(node *corev1.Node, now metav1.Time) (status corev1.NodeStatus, changed bool) {
	room := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(n.options.CPU), corev1.ResourceMemory: resource.MustParse(n.options.Memory), corev1.ResourcePods: resource.MustParse("110"),
	}
	status = corev1.NodeStatus{Capacity: room, Allocatable: room}
	before := map[corev1.NodeConditionType]corev1.NodeCondition{}
	for _, condition := range node.Status.Conditions {
		before[condition.Type] = condition
	}
	for _, condition := range []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory", Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID", Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"},
	} {
		was := before[condition.Type]
		condition.LastHeartbeatTime, condition.LastTransitionTime = now, was.LastTransitionTime
		if was.Status != condition.Status {
			condition.LastTransitionTime, changed = now, true
		}
		status.Conditions = append(status.Conditions, condition)
	}
	return status, changed
}

func patchStatus(ctx context.Context, c kubernetes.Interface, name string, status corev1.NodeStatus) error {
	patch, err := json.Marshal(corev1.Node{Status: status})
	if err != nil {
		return err
	}
	_, err = c.CoreV1().Nodes().PatchStatus(ctx, name, patch)
	return err
}
