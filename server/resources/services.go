package resources

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	networkinglisters "k8s.io/client-go/listers/networking/v1"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/registry/core/rangeallocation"
	"k8s.io/kubernetes/pkg/registry/core/service/allocator"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	ipcontroller "k8s.io/kubernetes/pkg/registry/core/service/ipallocator/controller"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"
	portcontroller "k8s.io/kubernetes/pkg/registry/core/service/portallocator/controller"
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

	allocators.nodePorts, err = portallocator.New(c.Services.nodePorts(), func(size int, spec string, offset int) (allocator.Interface, error) {
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

// followInterval is how often to check whether the allocators have processed the ServiceCIDRs; there is no notification.
const followInterval = 5 * time.Millisecond

// firstRetry is how soon a failed first pass is retried.
const firstRetry = time.Second

// ServiceRepair keeps the allocated cluster IPs and node ports in sync with the Services that use them: it creates missing
// allocations and frees leaked ones. kube-apiserver runs it as the post-start hook start-service-ip-repair-controllers.
type ServiceRepair struct {
	loops  []loop
	follow func() (bool, error)
}

// loop makes passes until stop is closed, and calls onFirstSuccess after the first successful one.
type loop func(onFirstSuccess func(), stop chan struct{})

// newServiceRepair makes the repair loops over the stored node port range.
func newServiceRepair(services Services, client kubernetes.Interface, factory informers.SharedInformerFactory, allocators *serviceAllocators) *ServiceRepair {
	interval := services.RepairInterval
	if interval == 0 {
		interval = repairInterval
	}
	cidrs := factory.Networking().V1().ServiceCIDRs()
	addresses := func() loop {
		return ipcontroller.NewRepairIPAddress(interval, client,
			factory.Core().V1().Services(), cidrs, factory.Networking().V1().IPAddresses()).RunUntil
	}
	ports := func(interval time.Duration) loop {
		return portcontroller.NewRepair(interval, client.CoreV1(), client.EventsV1(), services.nodePorts(), allocators.portRange).RunUntil
	}
	return &ServiceRepair{
		loops:  []loop{restartAfterFailure(addresses, firstRetry), retryFirstPass(ports, firstRetry, interval)},
		follow: func() (bool, error) { return allocators.follow(cidrs.Lister()) },
	}
}

// restartAfterFailure returns a loop that restarts newLoop's, which ends if its first pass fails, like that of the addresses.
func restartAfterFailure(newLoop func() loop, pause time.Duration) loop {
	next := newLoop() // not later, since it registers informers
	return func(onFirstSuccess func(), stop chan struct{}) {
		next(onFirstSuccess, stop)
		wait.Until(func() { newLoop()(onFirstSuccess, stop) }, pause, stop)
	}
}

// retryFirstPass returns a loop that soon retries a failed first pass of newLoop's, which would wait a whole interval, like that of
// the ports.
func retryFirstPass(newLoop func(interval time.Duration) loop, pause, interval time.Duration) loop {
	return func(onFirstSuccess func(), stop chan struct{}) {
		first := make(chan struct{})
		end := sync.OnceFunc(func() { close(first) })
		go func() {
			select {
			case <-stop:
				end()
			case <-first:
			}
		}()
		newLoop(pause)(func() { onFirstSuccess(); end() }, first)
		select {
		case <-stop:
		case <-time.After(interval):
			newLoop(interval)(func() {}, stop)
		}
	}
}

// Run repairs until ctx ends and returns when every loop has ended. It calls ready once each loop has succeeded for the first time
// and addresses can be allocated. Before that, Services are rejected, so the server must not be ready.
func (r *ServiceRepair) Run(ctx context.Context, ready func()) {
	stop := make(chan struct{}) // the loops take a bidirectional channel, so ctx.Done() won't do
	context.AfterFunc(ctx, func() { close(stop) })

	succeeded := make(chan struct{}, len(r.loops))
	var running sync.WaitGroup
	for _, loop := range r.loops {
		running.Go(func() { loop(func() { succeeded <- struct{}{} }, stop) })
	}
	running.Go(func() {
		for range r.loops {
			select {
			case <-succeeded:
			case <-ctx.Done():
				return
			}
		}
		following := func(context.Context) (bool, error) { return r.follow() }
		if err := wait.PollUntilContextCancel(ctx, followInterval, true, following); err == nil {
			ready()
		} else if ctx.Err() == nil {
			utilruntime.HandleErrorWithContext(ctx, err, "Service addresses can't be allocated")
		}
	})
	running.Wait()
}
