package bootstrap

import (
	"context"
	"errors"

	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controlplane/controller/defaultservicecidr"
)

// serviceCIDRHook creates the default ServiceCIDR, from which cluster IPs are allocated, sets its condition Ready, and maintains
// it.
func serviceCIDRHook(client kubernetes.Interface, services Services) *hook {
	controller := defaultservicecidr.NewController(services.IPRange, services.SecondaryIPRange, client)
	return &hook{
		name: "start-kubernetes-service-cidr-controller",
		serve: func(ctx context.Context, ready func()) error {
			controller.Start(ctx) // returns when the object exists, and continues in the background until ctx ends
			ready()
			<-ctx.Done()
			return nil
		},
	}
}

// serviceRepairHook makes the allocated cluster IPs and node ports agree with the Services: after a crash between an allocation
// and the write of the Service, and after a restore. It is ready after the first pass.
func serviceRepairHook(repair ServiceRepair) *hook {
	return &hook{
		name: "start-service-ip-repair-controllers",
		serve: func(ctx context.Context, ready func()) error {
			repair.Run(ctx, ready)
			if ctx.Err() == nil {
				return errors.New("the repair of Service addresses and ports has stopped: see the log")
			}
			return nil
		},
	}
}
