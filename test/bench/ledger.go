package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness/fakenode"
)

// ledger records the nodes' acknowledged writes.
type ledger struct {
	mu      sync.Mutex
	writes  int
	renewed map[string]time.Time // the last renewTime, by node
	pods    map[types.UID]podRecord
	errors  []error // of abandoned writes
}

// podRecord is what a node has reported about a Pod.
type podRecord struct {
	name             string
	running, removed bool
}

func (l *ledger) observer() fakenode.Observer {
	record := func(pod *corev1.Pod, change func(*podRecord)) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.writes++
		if l.pods == nil {
			l.pods = map[types.UID]podRecord{}
		}
		r := l.pods[pod.UID]
		r.name = pod.Namespace + "/" + pod.Name
		change(&r)
		l.pods[pod.UID] = r
	}
	return fakenode.Observer{
		Failed: func(err error) {
			progress("%v", err)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.errors = append(l.errors, err)
		},
		Renewed: func(lease *coordinationv1.Lease) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.writes++
			if l.renewed == nil {
				l.renewed = map[string]time.Time{}
			}
			if at := lease.Spec.RenewTime; at != nil {
				l.renewed[lease.Name] = at.Time
			}
		},
		Reported: func(pod *corev1.Pod) {
			record(pod, func(r *podRecord) { r.running = pod.Status.Phase == corev1.PodRunning })
		},
		Removed: func(pod *corev1.Pod) { record(pod, func(r *podRecord) { r.removed = true }) },
	}
}

// failed returns how many writes were abandoned.
func (l *ledger) failed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.errors)
}

// missing returns how many writes were acknowledged, and an error for each of them that is missing on the server. The nodes
// must have stopped.
func (l *ledger) missing(ctx context.Context, c kubernetes.Interface) (writes int, missing []error, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	leases, err := c.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, nil, err
	}
	pods, err := c.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, nil, err
	}
	stored := map[string]time.Time{}
	for _, lease := range leases.Items {
		if at := lease.Spec.RenewTime; at != nil {
			stored[lease.Name] = at.Time
		}
	}
	for node, at := range l.renewed {
		if stored[node].Before(at) {
			missing = append(missing, fmt.Errorf("node %s renewed its Lease at %s, but its renewTime is %s", node, at, stored[node]))
		}
	}
	present := map[types.UID]corev1.PodPhase{}
	for _, pod := range pods.Items {
		present[pod.UID] = pod.Status.Phase
	}
	for uid, record := range l.pods {
		switch phase, there := present[uid]; {
		case record.removed && there:
			missing = append(missing, fmt.Errorf("the Pod %s was removed, but exists", record.name))
		case !record.removed && !there:
			missing = append(missing, fmt.Errorf("the Pod %s ran and was not removed by its node, but does not exist", record.name))
		case !record.removed && record.running && phase != corev1.PodRunning:
			missing = append(missing, fmt.Errorf("the Pod %s was reported as running, but is %s", record.name, phase))
		}
	}
	return l.writes, missing, nil
}
