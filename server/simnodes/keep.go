package simnodes

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

const (
	// patience is how long a container that starts or is not ready yet may take. One that has taken longer stays as it is.
	patience = 5 * time.Minute
	// keptTask is how long a container runs on that ends by itself.
	keptTask = time.Minute
)

// keep continues a container as it was reported, and returns false if it goes on like one of a new Pod.
func (l *life) keep(c *container, was *corev1.ContainerStatus, at time.Time) bool {
	since := l.started
	if was.State.Running != nil {
		since = was.State.Running.StartedAt.Time
	}
	young := at.Sub(since) < patience
	waiting, ended := was.State.Waiting, was.State.Terminated
	switch {
	case ended != nil && c.restartable(ended.ExitCode):
		return false // as it is for a moment
	case waiting != nil && starting(waiting.Reason):
		if c.kept = was; young || waiting.Reason == "PodInitializing" {
			return true // it begins when it is its turn
		}
	case waiting != nil && waiting.Reason == "CreateContainerConfigError": // until what it lacks is there
		c.kept, c.held = was, true
		c.state, c.restarts, c.attempt, c.last = was.State, was.RestartCount, int(was.RestartCount), was.LastTerminationState
		return true
	case was.State.Running != nil && !was.Ready && !c.ends() && young:
		return false
	}
	c.kept, c.begun, c.at, c.log = was, true, at, newLog()
	c.state, c.last, c.ready, c.id = was.State, was.LastTerminationState, was.Ready, was.ContainerID
	c.started = was.Started != nil && *was.Started
	c.restarts, c.attempt = was.RestartCount, int(was.RestartCount)
	if ended != nil {
		c.done = true
		c.log.end()
	} else if was.State.Running != nil && c.ends() {
		c.left = Run{Wait(keptTask), Exit(0)}
	}
	return true
}

// ends reports whether the container is to end by itself.
func (c *container) ends() bool {
	return c.init || !c.sidecar && c.policy != corev1.RestartPolicyAlways
}

// starting reports whether a container waits for no other reason than that its Pod is starting.
func starting(reason string) bool {
	return reason == "" || reason == "ContainerCreating" || reason == "PodInitializing"
}

// asBefore reports whether nothing has happened to the Pod since the node has got it.
func (l *life) asBefore() bool {
	if l.kept == nil || l.reason != "" || l.over && l.kept.Phase == corev1.PodRunning {
		return false
	}
	for _, c := range l.containers {
		if c.kept == nil {
			return false
		}
	}
	return true
}

// keptStatus returns a status in which everything that a kubelet reports is as it was.
func (l *life) keptStatus(was corev1.PodStatus, now time.Time) corev1.PodStatus {
	status := *was.DeepCopy()
	status.Phase, status.Reason, status.Message, status.StartTime = l.kept.Phase, l.kept.Reason, l.kept.Message, l.kept.StartTime
	status.InitContainerStatuses, status.ContainerStatuses = l.kept.InitContainerStatuses, l.kept.ContainerStatuses
	for _, kept := range l.kept.Conditions {
		if c := condition(&status, kept.Type); c != nil && reportedByKubelets[kept.Type] {
			*c = kept
		}
	}
	if c := condition(&status, corev1.ContainersReady); c != nil && c.Status == corev1.ConditionTrue {
		l.setReady(&status, now)
	}
	return status
}

var reportedByKubelets = map[corev1.PodConditionType]bool{
	corev1.PodReadyToStartContainers: true, corev1.PodInitialized: true, corev1.ContainersReady: true, corev1.PodReady: true,
}

// readyNodes returns the names of the nodes that exist and are ready.
func (n *Nodes) readyNodes() (names []string, err error) {
	nodes, err := n.client.CoreV1().Nodes().List(n.ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		if ready(&nodes.Items[i]) {
			names = append(names, nodes.Items[i].Name)
		}
	}
	return names, nil
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// keepNode takes a node over that exists.
func (n *Nodes) keepNode(node *node, now time.Time) error {
	existing, err := n.client.CoreV1().Nodes().Get(n.ctx, node.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if ip := internalIP(existing); ip != "" {
		node.ip = ip
	}
	status, _ := n.nodeStatus(node, existing, now)
	if err := n.report(node, status, now); err != nil {
		return err
	}
	return n.renew(node, now)
}

// keptStatus returns what is new in the status of a node, whose status would otherwise be plain: the port for logs, and what a node needs that has
// just been created, or that was lost.
func (n *Nodes) keptStatus(plain corev1.NodeStatus, was *corev1.Node, now time.Time) (status corev1.NodeStatus, changed bool) {
	status.Addresses, status.DaemonEndpoints, status.NodeInfo = plain.Addresses[:1], plain.DaemonEndpoints, was.Status.NodeInfo
	if internalIP(was) == "" {
		status.Addresses, changed = plain.Addresses, true
	}
	if status.NodeInfo.KubeletVersion == "" {
		status.NodeInfo = plain.NodeInfo
	}
	if len(was.Status.Capacity) == 0 {
		status.Capacity, status.Allocatable = n.likely(was, plain)
	} else if len(was.Status.Allocatable) == 0 {
		status.Allocatable = was.Status.Capacity
	}
	for _, condition := range healthy {
		i := slices.IndexFunc(was.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == condition.Type })
		if i >= 0 && (was.Status.Conditions[i].Status == condition.Status || condition.Type != corev1.NodeReady && was.Status.Conditions[i].Status == corev1.ConditionTrue) {
			continue
		}
		condition.LastHeartbeatTime, condition.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
		status.Conditions, changed = append(status.Conditions, condition), true
	}
	return status, changed
}

// likely returns the capacity of a new node that does not say what it has: that of another node of its instance type, or of any other node.
func (n *Nodes) likely(added *corev1.Node, plain corev1.NodeStatus) (capacity, allocatable corev1.ResourceList) {
	capacity, allocatable = plain.Capacity, plain.Allocatable
	names := n.stored.ListKeys()
	slices.Sort(names)
	found := false
	for _, name := range names {
		object, ok, err := n.stored.GetByKey(name)
		if err != nil || !ok {
			continue
		}
		other := object.(*corev1.Node)
		same := other.Labels[corev1.LabelInstanceTypeStable] == added.Labels[corev1.LabelInstanceTypeStable]
		if len(other.Status.Capacity) == 0 || found && !same {
			continue
		}
		capacity, allocatable = other.Status.Capacity, other.Status.Allocatable
		if found = true; same {
			break
		}
	}
	return capacity, allocatable
}

// appear begins to simulate a node that has been created, if Options.Keep says so.
func (n *Nodes) appear(object any, initial bool) {
	created, ok := object.(*corev1.Node)
	if !ok {
		return
	}
	if known, _ := n.get(created.Name); known != nil || !n.options.Keep || initial {
		n.observe(object)
		return
	}
	if err := n.add(created.Name, internalIP(created)); err != nil {
		if n.options.Failed != nil {
			n.options.Failed(err)
		}
		return
	}
	n.queue.Add(key{node: true, name: created.Name})
}

// disappear ends a node whose Node has been deleted, if Options.Keep says so.
func (n *Nodes) disappear(object any) {
	name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil || !n.options.Keep {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if node := n.nodes[name]; node != nil {
		stopTimer(node.timer)
		delete(n.nodes, name)
	}
}
