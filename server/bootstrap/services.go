package bootstrap

import (
	"context"
	"errors"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	networkingclient "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/kubernetes/pkg/controlplane/controller/defaultservicecidr"
)

// serviceCIDRHook creates the default ServiceCIDR, from which cluster IPs are allocated, sets its condition Ready, and maintains
// it.
func serviceCIDRHook(client kubernetes.Interface, c Config) *hook {
	controller := defaultservicecidr.NewController(c.Services.IPRange, c.Services.SecondaryIPRange, rangeClient{client})
	return &hook{
		name: "start-kubernetes-service-cidr-controller",
		serve: func(ctx context.Context, ready func()) error {
			maintained, cancel := c.atFirst(ctx)
			defer cancel()
			controller.Start(maintained) // returns when the object exists, and continues in the background until ctx ends
			ready()
			<-ctx.Done()
			return nil
		},
	}
}

// rangeClient returns the existing ServiceCIDR if one is created twice. Upstream's controller does that until its informer has seen the
// first, and would report an event that the ranges differ from those in an empty object.
type rangeClient struct{ kubernetes.Interface }

// NetworkingV1 implements kubernetes.Interface.
func (c rangeClient) NetworkingV1() networkingclient.NetworkingV1Interface {
	return rangeNetworking{c.Interface.NetworkingV1()}
}

type rangeNetworking struct {
	networkingclient.NetworkingV1Interface
}

// ServiceCIDRs implements networkingclient.ServiceCIDRsGetter.
func (c rangeNetworking) ServiceCIDRs() networkingclient.ServiceCIDRInterface {
	return serviceRanges{c.NetworkingV1Interface.ServiceCIDRs()}
}

type serviceRanges struct {
	networkingclient.ServiceCIDRInterface
}

// Create implements networkingclient.ServiceCIDRInterface.
func (r serviceRanges) Create(ctx context.Context, wanted *networkingv1.ServiceCIDR, o metav1.CreateOptions) (*networkingv1.ServiceCIDR, error) {
	made, err := r.ServiceCIDRInterface.Create(ctx, wanted, o)
	if apierrors.IsAlreadyExists(err) {
		if present, readErr := r.Get(ctx, wanted.Name, metav1.GetOptions{}); readErr == nil {
			return present, err
		}
	}
	return made, err
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
