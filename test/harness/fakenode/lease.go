package fakenode

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/component-helpers/apimachinery/lease"
	"k8s.io/utils/clock"
)

// leaseSeconds is a kubelet's nodeLeaseDurationSeconds.
const leaseSeconds = 40

// renewLease renews the node's Lease until the context ends, with the kubelet's own controller.
func (n *Node) renewLease(ctx context.Context) {
	lease.NewController(clock.RealClock{}, observedClient{n.client, n}, n.options.Name, leaseSeconds, nil,
		n.options.LeaseInterval, n.options.Name, corev1.NamespaceNodeLease, nil).Run(ctx)
}

// observedClient is a client that reports failed writes of Leases.
type observedClient struct {
	kubernetes.Interface
	node *Node
}

// CoordinationV1 returns the client of the Leases' group.
func (c observedClient) CoordinationV1() clientv1.CoordinationV1Interface {
	return observedCoordination{c.Interface.CoordinationV1(), c.node}
}

type observedCoordination struct {
	clientv1.CoordinationV1Interface
	node *Node
}

// Leases returns the client of Leases.
func (c observedCoordination) Leases(namespace string) clientv1.LeaseInterface {
	return &observedLeases{LeaseInterface: c.CoordinationV1Interface.Leases(namespace), node: c.node}
}

// observedLeases is used by one goroutine.
type observedLeases struct {
	clientv1.LeaseInterface
	node   *Node
	failed int // updates since the last acknowledged one
}

// Create creates the Lease.
func (l *observedLeases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	created, err := l.LeaseInterface.Create(ctx, lease, o)
	l.observe(ctx, err)
	return created, err
}

// Update renews the Lease.
func (l *observedLeases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	updated, err := l.LeaseInterface.Update(ctx, lease, o)
	l.observe(ctx, err)
	return updated, err
}

func (l *observedLeases) observe(ctx context.Context, err error) {
	switch {
	case err == nil:
		l.failed = 0
	case ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err): // these make it read the Lease and retry
		if l.failed++; l.failed%attempts == 0 {
			l.node.options.failed("renewing the Lease of Node %s: %w", l.node.options.Name, err)
		}
	}
}
