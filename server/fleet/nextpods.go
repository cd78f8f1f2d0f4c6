package fleet

import (
	"context"
	"time"

	"github.com/robfig/cron/v3"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// cronJobs notes when CronJobs next create Jobs.
func (m *moments) cronJobs(ctx context.Context) error {
	return each(ctx, m, batchv1.GroupName, "cronjobs", func(c *batchv1.CronJob) {
		if c.DeletionTimestamp != nil || c.Spec.Suspend != nil && *c.Spec.Suspend {
			return
		}
		text := c.Spec.Schedule
		if zone := c.Spec.TimeZone; zone != nil {
			text = "TZ=" + *zone + " " + text
		}
		schedule, err := cron.ParseStandard(text)
		if err != nil {
			return // its controller can't read it either
		}
		m.at(schedule.Next(m.now))
	})
}

// rollouts notes when Deployments have taken too long.
func (m *moments) rollouts(ctx context.Context) error {
	return each(ctx, m, appsv1.GroupName, "deployments", func(d *appsv1.Deployment) {
		for _, condition := range d.Status.Conditions {
			if condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionTrue &&
				condition.Reason != "NewReplicaSetAvailable" && d.Spec.ProgressDeadlineSeconds != nil && !d.Spec.Paused {
				m.at(condition.LastUpdateTime.Add(time.Duration(*d.Spec.ProgressDeadlineSeconds) * time.Second))
			}
		}
		if d.Status.ReadyReplicas > d.Status.AvailableReplicas {
			m.at(m.now.Add(time.Duration(d.Spec.MinReadySeconds) * time.Second))
		}
	})
}

const (
	// nodeGrace is how old the Lease of a node is when its controller takes it for dead.
	nodeGrace = 50 * time.Second
	// playInterval is how often a cluster with simulated nodes wakes up while Pods on them do something.
	playInterval = 30 * time.Second
)

// nodesAndPods notes when nodes are taken for dead, and when Pods are evicted or are to end.
func (m *moments) nodesAndPods(simulated bool) func(context.Context) error {
	return func(ctx context.Context) error {
		nodes := map[string]*corev1.Node{}
		if err := each(ctx, m, "", "nodes", func(n *corev1.Node) { nodes[n.Name] = n }); err != nil || len(nodes) == 0 {
			return err
		}
		if !simulated { // the others renew their Leases as soon as the cluster is awake
			err := each(ctx, m, coordinationv1.GroupName, "leases", func(l *coordinationv1.Lease) {
				if n := nodes[l.Name]; l.Namespace == corev1.NamespaceNodeLease && n != nil && l.Spec.RenewTime != nil && answers(n) {
					m.at(l.Spec.RenewTime.Add(nodeGrace))
				}
			})
			if err != nil {
				return err
			}
		}
		return each(ctx, m, "", "pods", func(p *corev1.Pod) {
			if p.DeletionTimestamp != nil {
				m.at(p.DeletionTimestamp.Time)
			}
			n := nodes[p.Spec.NodeName]
			if n == nil || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
				return
			}
			if simulated && (p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning || p.Spec.RestartPolicy != corev1.RestartPolicyAlways) {
				m.at(m.now.Add(playInterval))
			}
			for i := range n.Spec.Taints {
				m.at(evicted(p, &n.Spec.Taints[i]))
			}
		})
	}
}

// answers reports whether a node is not known to be dead.
func answers(n *corev1.Node) bool {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status != corev1.ConditionUnknown
		}
	}
	return true
}

// evicted returns when a Pod no longer tolerates a taint, the zero time if it does for ever.
func evicted(p *corev1.Pod, taint *corev1.Taint) (at time.Time) {
	if taint.Effect != corev1.TaintEffectNoExecute || taint.TimeAdded == nil || p.DeletionTimestamp != nil {
		return at
	}
	for i := range p.Spec.Tolerations {
		t := &p.Spec.Tolerations[i]
		if tolerates(t, taint) && t.TolerationSeconds != nil {
			at = earlier(at, taint.TimeAdded.Add(time.Duration(*t.TolerationSeconds)*time.Second))
		}
	}
	return at
}

// tolerates is ToleratesTaint of a toleration.
func tolerates(t *corev1.Toleration, taint *corev1.Taint) bool {
	return (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" || t.Key == taint.Key) &&
		(t.Operator == corev1.TolerationOpExists || t.Value == taint.Value)
}
