package resources

import (
	"fmt"
	"net"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/rangeallocation"
	"k8s.io/kubernetes/pkg/registry/core/service/allocator"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"
	netutils "k8s.io/utils/net"
)

// serviceAllocators allocate the addresses and ports of Services. Addresses are IPAddress objects (KEP-1880), node ports are a stored
// bitmap.
type serviceAllocators struct {
	primary   *ipallocator.MetaAllocator
	byFamily  map[api.IPFamily]ipallocator.Interface
	nodePorts *portallocator.PortAllocator
	portRange rangeallocation.RangeRegistry // the stored bitmap, for the repair loop
}

// newServiceAllocators makes the allocators of the configured ranges. The address allocators follow the ServiceCIDR and
// IPAddress informers and allocate nothing until those have synced.
func newServiceAllocators(c Config, client kubernetes.Interface) (*serviceAllocators, error) {
	primary, err := newIPAllocator(c, client, c.Services.IPRange)
	if err != nil {
		return nil, err
	}
	allocators := &serviceAllocators{
		primary:  primary,
		byFamily: map[api.IPFamily]ipallocator.Interface{primary.IPFamily(): primary},
	}
	if c.Services.SecondaryIPRange.IP != nil {
		secondary, err := newIPAllocator(c, client, c.Services.SecondaryIPRange)
		if err != nil {
			return nil, err
		}
		if secondary.IPFamily() == primary.IPFamily() {
			return nil, fmt.Errorf("both service ranges are %s: give one of each family, or only one", primary.IPFamily())
		}
		allocators.byFamily[secondary.IPFamily()] = secondary
	}

	allocators.nodePorts, err = portallocator.New(c.Services.NodePorts, func(size int, spec string, offset int) (allocator.Interface, error) {
		store, err := newRangeStore(c.RESTOptions, "servicenodeports", allocator.NewAllocationMapWithOffset(size, spec, offset))
		if err != nil {
			return nil, err
		}
		allocators.portRange = store
		return store, nil
	})
	if err != nil {
		return nil, fmt.Errorf("making the node port allocator: %w", err)
	}
	allocators.nodePorts.EnableMetrics()
	return allocators, nil
}

// newIPAllocator allocates cluster IPs of the range's family.
func newIPAllocator(c Config, client kubernetes.Interface, ipRange net.IPNet) (*ipallocator.MetaAllocator, error) {
	allocator, err := ipallocator.NewMetaAllocator(
		client.NetworkingV1(),
		c.Informers.Networking().V1().ServiceCIDRs(),
		c.Informers.Networking().V1().IPAddresses(),
		netutils.IsIPv6CIDR(&ipRange),
		nil, // no older bitmap to keep in sync: DisableAllocatorDualWrite is locked to true
	)
	if err != nil {
		return nil, fmt.Errorf("making the cluster IP allocator of %s: %w", ipRange.String(), err)
	}
	allocator.EnableMetrics()
	return allocator, nil
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
