package resources

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	ipcontroller "k8s.io/kubernetes/pkg/registry/core/service/ipallocator/controller"
	portcontroller "k8s.io/kubernetes/pkg/registry/core/service/portallocator/controller"
)

// ServiceRepair keeps the allocated cluster IPs and node ports in step with the Services that use them: it creates what
// is missing and frees what has leaked. kube-apiserver runs it as the post-start hook
// start-service-ip-repair-controllers.
type ServiceRepair struct {
	loops []func(onFirstSuccess func(), stop chan struct{})
}

// newServiceRepair makes the repair loops over the stored node port range.
func newServiceRepair(services Services, client kubernetes.Interface, factory informers.SharedInformerFactory, allocators *serviceAllocators) *ServiceRepair {
	interval := services.RepairInterval
	if interval == 0 {
		interval = repairInterval
	}
	addresses := ipcontroller.NewRepairIPAddress(interval, client,
		factory.Core().V1().Services(),
		factory.Networking().V1().ServiceCIDRs(),
		factory.Networking().V1().IPAddresses())
	ports := portcontroller.NewRepair(interval, client.CoreV1(), client.EventsV1(), services.nodePorts(), allocators.portRange)
	return &ServiceRepair{loops: []func(func(), chan struct{}){addresses.RunUntil, ports.RunUntil}}
}

// Run repairs until ctx ends and returns when every loop has. It calls ready once, when each loop has succeeded for the
// first time; before that, Services with node ports are refused, so the server should not report itself as ready.
func (r *ServiceRepair) Run(ctx context.Context, ready func()) {
	stop := make(chan struct{}) // the loops take a bidirectional channel, so ctx.Done() won't do
	context.AfterFunc(ctx, func() { close(stop) })

	var waiting atomic.Int32
	waiting.Store(int32(len(r.loops)))
	succeeded := func() {
		if waiting.Add(-1) == 0 {
			ready()
		}
	}
	var running sync.WaitGroup
	for _, loop := range r.loops {
		running.Go(func() { loop(succeeded, stop) })
	}
	running.Wait()
}
