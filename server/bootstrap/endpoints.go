package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"
)

// soleAddress lists the addresses of live servers if there is only one: its own. It writes nothing.
type soleAddress struct{ address atomic.Pointer[string] } // nil before it is set

// ListLeases returns the address, if it has been set.
func (s *soleAddress) ListLeases() ([]string, error) {
	if address := s.address.Load(); address != nil {
		return []string{*address}, nil
	}
	return nil, nil
}

// UpdateLease sets the address.
func (s *soleAddress) UpdateLease(address string) error {
	s.address.Store(&address)
	return nil
}

// RemoveLease removes the address. It returns a storage not-found error if it was not set.
func (s *soleAddress) RemoveLease(address string) error {
	if s.address.Swap(nil) == nil {
		return storage.NewKeyNotFoundError(address, 0)
	}
	return nil
}

// Destroy does nothing.
func (s *soleAddress) Destroy() {}

const (
	addressLabel  = "sqube.io/kubernetes-endpoint"
	addressPrefix = "kubernetes-endpoint-"
	leaseTimeout  = 10 * time.Second
)

// addressLeases lists the addresses of live servers. Each address has a Lease in kube-system, where upstream has keys with a time
// to live in etcd. A Lease is live if it keeps changing, measured with this server's clock: clocks of different hosts are not
// compared.
type addressLeases struct {
	leases   coordinationclient.LeaseInterface
	duration time.Duration
	now      func() time.Time

	mu     sync.Mutex
	listed time.Time           // when the Leases were last listed
	seen   map[string]sighting // by name of the Lease
}

// sighting is when a Lease was first seen in its current version.
type sighting struct {
	resourceVersion string
	since           time.Time
}

func newAddressLeases(client kubernetes.Interface, duration time.Duration, now func() time.Time) *addressLeases {
	return &addressLeases{
		leases: client.CoordinationV1().Leases(metav1.NamespaceSystem), duration: duration, now: now, seen: map[string]sighting{},
	}
}

// ListLeases returns the addresses whose Leases have changed within the duration, sorted, and deletes the Leases of the
// others. If it could not list them for a while, such as during a failover of the database, the duration begins again: other
// servers could not renew their Leases either. (etcd extends its leases in the same way.)
func (a *addressLeases) ListLeases() ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	list, err := a.leases.List(ctx, metav1.ListOptions{LabelSelector: addressLabel})
	if err != nil {
		return nil, fmt.Errorf("list addresses of API servers: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	if now.Sub(a.listed) > 2*a.duration/renewals {
		clear(a.seen)
	}
	a.listed = now
	var addresses []string
	var errs []error
	seen := make(map[string]sighting, len(list.Items))
	for i := range list.Items {
		lease := &list.Items[i]
		sight, known := a.seen[lease.Name]
		if !known || sight.resourceVersion != lease.ResourceVersion {
			sight = sighting{lease.ResourceVersion, now}
		}
		if now.Sub(sight.since) > a.duration {
			errs = append(errs, deleteUnchanged(ctx, a.leases, lease))
			continue
		}
		seen[lease.Name] = sight
		addresses = append(addresses, ptr.Deref(lease.Spec.HolderIdentity, ""))
	}
	a.seen = seen
	slices.Sort(addresses)
	return addresses, errors.Join(errs...)
}

// deleteUnchanged deletes the Lease unless its server has come back and renewed it.
func deleteUnchanged(ctx context.Context, leases coordinationclient.LeaseInterface, lease *coordinationv1.Lease) error {
	err := leases.Delete(ctx, lease.Name, *metav1.NewRVDeletionPrecondition(lease.ResourceVersion))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete expired lease %s: %w", lease.Name, err)
	}
	return nil
}

// UpdateLease creates or renews the Lease of the address.
func (a *addressLeases) UpdateLease(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	name := addressLeaseName(address)
	lease, err := a.leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{addressLabel: ""}}}
		a.renew(lease, address)
		if _, err = a.leases.Create(ctx, lease, metav1.CreateOptions{}); created(err) != nil {
			return fmt.Errorf("create lease of address %s: %w", address, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("get lease of address %s: %w", address, err)
	}
	a.renew(lease, address)
	if _, err = a.leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("renew lease of address %s: %w", address, err)
	}
	return nil
}

func (a *addressLeases) renew(lease *coordinationv1.Lease, address string) {
	lease.Spec.HolderIdentity = &address
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(a.duration / time.Second))
	lease.Spec.RenewTime = &metav1.MicroTime{Time: a.now()}
}

// RemoveLease deletes the Lease of the address. It returns a storage not-found error when there is none.
func (a *addressLeases) RemoveLease(address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	err := a.leases.Delete(ctx, addressLeaseName(address), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return storage.NewKeyNotFoundError(address, 0)
	}
	if err != nil {
		return fmt.Errorf("delete lease of address %s: %w", address, err)
	}
	return nil
}

// Destroy does nothing: the client is the server's.
func (a *addressLeases) Destroy() {}

// addressLeaseName returns an object name for an address; names can't contain colons.
func addressLeaseName(address string) string {
	if ip, err := netip.ParseAddr(address); err == nil && ip.Is6() {
		address = strings.ReplaceAll(ip.StringExpanded(), ":", "-")
	}
	return addressPrefix + address
}
