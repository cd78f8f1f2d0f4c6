package bootstrap

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controlplane/controller/defaultservicecidr"
	ipcontroller "k8s.io/kubernetes/pkg/registry/core/service/ipallocator/controller"
	portcontroller "k8s.io/kubernetes/pkg/registry/core/service/portallocator/controller"
)

const (
	serviceCIDRHookName = "start-kubernetes-service-cidr-controller"
	// repairInterval is how often the addresses and node ports of all Services are gone through, as upstream.
	repairInterval = 3 * time.Minute
)

// serviceCIDRHook creates the default ServiceCIDR, from which cluster IPs are allocated, says that it is ready, and
// looks after it from then on.
func serviceCIDRHook(client kubernetes.Interface, services Services) *hook {
	controller := defaultservicecidr.NewController(services.IPRange, services.SecondaryIPRange, client)
	return &hook{
		name: serviceCIDRHookName,
		serve: func(ctx context.Context, ready func()) error {
			controller.Start(ctx) // returns when the object exists, and goes on behind until ctx ends
			ready()
			<-ctx.Done()
			return nil
		},
	}
}

// serviceRepairHook makes the allocated cluster IPs and node ports agree with the Services: after a crash between
// allocating one and writing the Service, and after a restore. Ready when that has been done once.
func serviceRepairHook(client kubernetes.Interface, shared informers.SharedInformerFactory, services Services) *hook {
	addresses := ipcontroller.NewRepairIPAddress(repairInterval, client,
		shared.Core().V1().Services(), shared.Networking().V1().ServiceCIDRs(), shared.Networking().V1().IPAddresses())
	loops := []func(onFirstSuccess func(), stop chan struct{}){addresses.RunUntil}
	if services.NodePortRegistry != nil {
		ports := portcontroller.NewRepair(repairInterval, client.CoreV1(), client.EventsV1(),
			services.NodePorts, services.NodePortRegistry)
		loops = append(loops, ports.RunUntil)
	}
	return &hook{
		name: "start-service-ip-repair-controllers",
		serve: func(ctx context.Context, ready func()) error {
			var running sync.WaitGroup
			var left atomic.Int64
			left.Store(int64(len(loops)))
			stop := make(chan struct{})
			gaveUp := make(chan struct{}, len(loops))
			for _, loop := range loops {
				running.Go(func() {
					loop(func() {
						if left.Add(-1) == 0 {
							ready()
						}
					}, stop)
					gaveUp <- struct{}{}
				})
			}
			defer running.Wait()
			defer close(stop)
			select {
			case <-ctx.Done():
				return nil
			case <-gaveUp:
				return errors.New("the addresses of the Services could not be gone through; the log above says why")
			}
		},
	}
}
