package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// ledger records the nodes' acknowledged writes.
type ledger struct {
	mu      sync.Mutex
	writes  int
	renewed map[string]time.Time // the last renewTime, by node
	pods    map[types.UID]podRecord
	errors  []error // of abandoned writes
}

// podRecord is what a node has last reported about a Pod: that it runs, or that it is removed.
type podRecord struct {
	name    string
	removed bool
}

// renew records that a node has renewed its Lease.
func (l *ledger) renew(node string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
	if l.renewed == nil {
		l.renewed = map[string]time.Time{}
	}
	l.renewed[node] = at
}

// run records that a Pod was reported as running.
func (l *ledger) run(uid, name string) { l.record(uid, podRecord{name, false}) }

// remove records that a Pod was removed.
func (l *ledger) remove(uid, name string) { l.record(uid, podRecord{name, true}) }

func (l *ledger) record(uid string, r podRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
	if l.pods == nil {
		l.pods = map[types.UID]podRecord{}
	}
	l.pods[types.UID(uid)] = r
}

// fail records a write that failed for good.
func (l *ledger) fail(err error) {
	progress("%v", err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.errors = append(l.errors, err)
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
		case !record.removed && phase != corev1.PodRunning:
			missing = append(missing, fmt.Errorf("the Pod %s was reported as running, but is %s", record.name, phase))
		}
	}
	return l.writes, missing, nil
}
