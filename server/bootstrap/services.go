package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	networkingclient "k8s.io/client-go/kubernetes/typed/networking/v1"
	"k8s.io/kubernetes/pkg/controlplane/controller/defaultservicecidr"
	"k8s.io/kubernetes/pkg/controlplane/controller/kubernetesservice"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
	netutils "k8s.io/utils/net"
)

const (
	kubernetesServicePort = 443
	// endpointInterval is how often the Service and its endpoints are reconciled, like upstream.
	endpointInterval = 10 * time.Second
	// ownEndpointInterval is that of a server that can be one of many in its process, and has no others beside it.
	ownEndpointInterval = time.Minute
	// serviceCIDRInterval is how often the hook looks whether the default ServiceCIDR is as it was, like upstream.
	serviceCIDRInterval = 10 * time.Second
	// EndpointLease is how long an address stays published without renewal, like upstream.
	EndpointLease = 15 * time.Second
	// renewals is how often an address is renewed within EndpointLease, so that one failure does not withdraw it.
	renewals = 3
)

// AdvertiseAddress returns the address at which the cluster reaches a server that listens on bind: bind itself, or an address of
// this host if bind is unspecified or a loopback address, which Endpoints may not contain. It returns nil if the host has only
// loopback addresses; then there is no endpoint to publish.
func AdvertiseAddress(bind net.IP) net.IP {
	if address, err := utilnet.ResolveBindAddress(bind); err == nil {
		return address
	}
	// The host has no default route, like a board without a network. Use the address of any interface.
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			return network.IP
		}
	}
	return nil
}

// kubernetesServiceHook creates Service default/kubernetes, which readiness waits for, and publishes this server's address in its
// endpoints once the server is ready, like upstream's controller. It withdraws the address when the server stops.
func kubernetesServiceHook(client kubernetes.Interface, c Config, after ...*hook) (*hook, error) {
	serviceIP, err := netutils.GetIndexedIP(&c.Services.IPRange, 1)
	if err != nil {
		return nil, fmt.Errorf("--service-cluster-ip-range %s has no address for Service kubernetes: %w", &c.Services.IPRange, err)
	}
	interval := endpointInterval
	if c.Endpoint.Lease > 0 {
		interval = c.Endpoint.Lease / renewals
	} else if c.Seldom > 0 {
		interval = c.Seldom
	} else if c.InMemory {
		interval = ownEndpointInterval
	}
	informer := c.Informers.Core().V1().Services()
	config := kubernetesservice.Config{
		PublicIP:           c.Endpoint.Address,
		EndpointReconciler: reconcilers.NewNoneEndpointReconciler(),
		EndpointInterval:   interval,
		ServiceIP:          serviceIP,
		ServicePort:        kubernetesServicePort,
		PublicServicePort:  c.Endpoint.Port,

		KubernetesServiceNodePort: c.Services.NodePort,
	}
	creator := kubernetesservice.New(config, client, informer) // of the Service alone
	config.EndpointReconciler = endpointReconciler(client, c.Endpoint)
	if c.InMemory {
		config.EndpointReconciler = withPorts{config.EndpointReconciler}
	}
	controller := kubernetesservice.New(config, client, informer)
	synced := informer.Informer().HasSyncedChecker()
	return &hook{
		name:      "bootstrap-controller",
		after:     after,
		announces: true,
		ensure: func(ctx context.Context) error {
			select {
			case <-synced.Done():
			case <-ctx.Done():
				return fmt.Errorf("wait for the informer of Services: %w", ctx.Err())
			}
			// Fails until the allocator has seen the ServiceCIDR. Unlike upstream, an existing Service gets a node port too.
			if err := creator.UpdateKubernetesService(c.Services.NodePort > 0); err != nil {
				return fmt.Errorf("create Service default/kubernetes: %w", err)
			}
			// Before the informer has it, the controller would try to create it again, fail, and publish the address an interval later.
			err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Second, true, func(context.Context) (bool, error) {
				_, err := informer.Lister().Services(metav1.NamespaceDefault).Get("kubernetes")
				return err == nil, nil
			})
			if err != nil {
				return fmt.Errorf("wait until the informer has Service default/kubernetes: %w", err)
			}
			return nil
		},
		serve: readyAtOnce(func(ctx context.Context) {
			if c.Endpoint.Address == nil {
				controller.Run(ctx.Done())
				return
			}
			controller.Start(ctx.Done())
			<-ctx.Done()
			controller.Stop()
		}),
	}, nil
}

// withPorts also corrects the ports of endpoints: those of a copied cluster are not this server's.
type withPorts struct{ reconcilers.EndpointReconciler }

// ReconcileEndpoints implements reconcilers.EndpointReconciler.
func (r withPorts) ReconcileEndpoints(service string, address net.IP, ports []corev1.EndpointPort, _ bool) error {
	return r.EndpointReconciler.ReconcileEndpoints(service, address, ports, true)
}

func endpointReconciler(client kubernetes.Interface, endpoint Endpoint) reconcilers.EndpointReconciler {
	if endpoint.Address == nil {
		return reconcilers.NewNoneEndpointReconciler()
	}
	adapter := reconcilers.NewEndpointsAdapter(client.CoreV1(), client.DiscoveryV1())
	if endpoint.Lease == 0 {
		return reconcilers.NewLeaseEndpointReconciler(adapter, &soleAddress{})
	}
	return reconcilers.NewLeaseEndpointReconciler(adapter, newAddressLeases(client, endpoint.Lease, time.Now))
}

// serviceCIDRHook creates the default ServiceCIDR, from which cluster IPs are allocated, sets its condition Ready, and maintains
// it.
func serviceCIDRHook(client kubernetes.Interface, c Config) *hook {
	keep := upkeep{
		interval: cmp.Or(c.Seldom, serviceCIDRInterval),
		revision: func(ctx context.Context) (string, error) {
			found, err := c.Informers.Networking().V1().ServiceCIDRs().Lister().Get(defaultservicecidr.DefaultServiceCIDRName)
			if apierrors.IsNotFound(err) {
				return "", nil
			}
			if err != nil {
				return "", err
			}
			return found.ResourceVersion, nil
		},
	}
	return &hook{
		name: "start-kubernetes-service-cidr-controller",
		serve: func(ctx context.Context, ready func()) error {
			keep.run = func(ctx context.Context) {
				controller := defaultservicecidr.NewController(c.Services.IPRange, c.Services.SecondaryIPRange, rangeClient{client})
				controller.Start(ctx) // returns when the object exists, and continues in the background until ctx ends
				ready()
				<-ctx.Done()
			}
			keep.until(ctx)
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
func serviceRepairHook(repair func(ctx context.Context, ready func())) *hook {
	return &hook{
		name: "start-service-ip-repair-controllers",
		serve: func(ctx context.Context, ready func()) error {
			repair(ctx, ready)
			if ctx.Err() == nil {
				return errors.New("the repair of Service addresses and ports has stopped: see the log")
			}
			return nil
		},
	}
}
