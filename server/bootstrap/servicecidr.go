package bootstrap

import (
	"context"
	"errors"

	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controlplane/controller/defaultservicecidr"
)

const serviceCIDRHookName = "start-kubernetes-service-cidr-controller"

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
func serviceRepairHook(repair ServiceRepair) *hook {
	return &hook{
		name: "start-service-ip-repair-controllers",
		serve: func(ctx context.Context, ready func()) error {
			repair.Run(ctx, ready)
			if ctx.Err() == nil {
				return errors.New("the addresses and ports of Services could not be gone through; the log says why")
			}
			return nil
		},
	}
}
