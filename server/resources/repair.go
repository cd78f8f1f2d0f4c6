package resources

import (
	"context"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	ipcontroller "k8s.io/kubernetes/pkg/registry/core/service/ipallocator/controller"
	portcontroller "k8s.io/kubernetes/pkg/registry/core/service/portallocator/controller"
)

// followInterval is how often it is looked whether the allocators follow the ServiceCIDRs, which nothing announces.
const followInterval = 5 * time.Millisecond

// ServiceRepair keeps the allocated cluster IPs and node ports in step with the Services that use them: it creates what
// is missing and frees what has leaked. kube-apiserver runs it as the post-start hook
// start-service-ip-repair-controllers.
type ServiceRepair struct {
	loops  []func(onFirstSuccess func(), stop chan struct{})
	follow func() (bool, error)
}

// newServiceRepair makes the repair loops over the stored node port range.
func newServiceRepair(services Services, client kubernetes.Interface, factory informers.SharedInformerFactory, allocators *serviceAllocators) *ServiceRepair {
	interval := services.RepairInterval
	if interval == 0 {
		interval = repairInterval
	}
	cidrs := factory.Networking().V1().ServiceCIDRs()
	addresses := ipcontroller.NewRepairIPAddress(interval, client,
		factory.Core().V1().Services(), cidrs, factory.Networking().V1().IPAddresses())
	ports := portcontroller.NewRepair(interval, client.CoreV1(), client.EventsV1(), services.nodePorts(), allocators.portRange)
	return &ServiceRepair{
		loops:  []func(func(), chan struct{}){addresses.RunUntil, ports.RunUntil},
		follow: func() (bool, error) { return allocators.follow(cidrs.Lister()) },
	}
}

// Run repairs until ctx ends and returns when every loop has. It calls ready once, when each loop has succeeded for the
// first time and addresses can be allocated; before that, Services are refused, so the server should not report itself
// as ready.
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
