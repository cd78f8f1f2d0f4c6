package resources

import (
	"fmt"
	"net"

	"k8s.io/apimachinery/pkg/labels"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/registry/core/service/allocator"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"
	netutils "k8s.io/utils/net"
)

// serviceAllocators allocate the addresses and ports of Services. Addresses are IPAddress objects (KEP-1880), node ports are a stored
// bitmap. As in Kubernetes 1.34, addresses can be in stored bitmaps too.
type serviceAllocators struct {
	primary   ipallocator.Interface
	byFamily  map[api.IPFamily]ipallocator.Interface
	nodePorts *portallocator.PortAllocator
	// The stored bitmaps, for the repair loops; ipRange and secondaryIPRange are nil if addresses are only objects.
	portRange, ipRange, secondaryIPRange *rangeStore
}

// destroy stops the background work of the allocators. The storage of Services may have done that before.
func (a *serviceAllocators) destroy() {
	for _, addresses := range a.byFamily {
		addresses.Destroy()
	}
	a.nodePorts.Destroy()
}

// addressObjects reports whether addresses of Services are IPAddress objects.
func addressObjects() bool {
	return utilfeature.DefaultFeatureGate.Enabled(features.MultiCIDRServiceAllocator)
}

// AddressBitmaps reports whether addresses of Services are in bitmaps, whose size is limited.
func AddressBitmaps() bool {
	return !addressObjects() || !utilfeature.DefaultFeatureGate.Enabled(features.DisableAllocatorDualWrite)
}

// newServiceAllocators makes the allocators of the configured ranges. The address allocators follow the ServiceCIDR and
// IPAddress informers and allocate nothing until those have synced.
func newServiceAllocators(c Config, client kubernetes.Interface) (*serviceAllocators, error) {
	allocators := &serviceAllocators{}
	var err error
	if allocators.primary, allocators.ipRange, err = newIPAllocator(c, client, c.Services.IPRange, "serviceips"); err != nil {
		return nil, err
	}
	family := allocators.primary.IPFamily()
	allocators.byFamily = map[api.IPFamily]ipallocator.Interface{family: allocators.primary}
	if c.Services.SecondaryIPRange.IP != nil {
		var secondary ipallocator.Interface
		if secondary, allocators.secondaryIPRange, err = newIPAllocator(c, client, c.Services.SecondaryIPRange, "secondaryserviceips"); err != nil {
			return nil, err
		}
		if secondary.IPFamily() == family {
			return nil, fmt.Errorf("both service ranges are %s: give one of each family, or only one", family)
		}
		allocators.byFamily[secondary.IPFamily()] = secondary
	}

	allocators.nodePorts, err = portallocator.New(c.Services.NodePorts, storedBitmap(c, "servicenodeports", &allocators.portRange))
	if err != nil {
		return nil, fmt.Errorf("making the node port allocator: %w", err)
	}
	allocators.nodePorts.EnableMetrics()
	return allocators, nil
}

// storedBitmap returns a function that makes the set of a range's allocated items, stored under name, and sets made to it.
func storedBitmap(c Config, name string, made **rangeStore) allocator.AllocatorWithOffsetFactory {
	return func(size int, spec string, offset int) (allocator.Interface, error) {
		store, err := newRangeStore(c.RESTOptions, name, allocator.NewAllocationMapWithOffset(size, spec, offset))
		if err != nil {
			return nil, err
		}
		*made = store
		return store, nil
	}
}

// newIPAllocator allocates cluster IPs of the range's family. bitmap is the one stored under name, nil if addresses are only objects.
func newIPAllocator(c Config, client kubernetes.Interface, ipRange net.IPNet, name string) (made ipallocator.Interface, bitmap *rangeStore, err error) {
	if AddressBitmaps() {
		made, err = ipallocator.New(&ipRange, storedBitmap(c, name, &bitmap))
	}
	if err == nil && addressObjects() {
		made, err = ipallocator.NewMetaAllocator(
			client.NetworkingV1(),
			c.Informers.Networking().V1().ServiceCIDRs(),
			c.Informers.Networking().V1().IPAddresses(),
			netutils.IsIPv6CIDR(&ipRange),
			made, // written as well
		)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("making the cluster IP allocator of %s: %w", ipRange.String(), err)
	}
	made.EnableMetrics()
	return made, bitmap, nil
}

// follow reports whether the address allocators have processed every ServiceCIDR, which happens shortly after the informers have
// synced. Until then they report that their range is full.
func (a *serviceAllocators) follow(cidrs networkinglisters.ServiceCIDRLister) (bool, error) {
	all, err := cidrs.List(labels.Everything())
	if err != nil {
		return false, err
	}
	for _, cidr := range all {
		for _, block := range cidr.Spec.CIDRs {
			family := api.IPv4Protocol
			if netutils.IsIPv6CIDRString(block) {
				family = api.IPv6Protocol
			}
			allocator, ok := a.byFamily[family].(*ipallocator.MetaAllocator)
			if ok && allocator.Used()+allocator.Free() == 0 {
				return false, nil
			}
		}
	}
	return true, nil
}
