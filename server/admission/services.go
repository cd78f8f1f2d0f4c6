package admission

import (
	"net/url"

	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// ServiceRouting says how a service's address is found.
type ServiceRouting struct {
	// Endpoints sends requests to a ready endpoint instead of the cluster IP (--enable-aggregator-routing), which is
	// needed where this machine does not route cluster IPs.
	Endpoints bool
	// Self is this server's own URL, used for the service kubernetes in default. May be nil.
	Self *url.URL
}

// NewServiceResolver finds addresses of services in informers, for webhooks and conversion webhooks.
// Its errors say which service or endpoint is missing.
func NewServiceResolver(f informers.SharedInformerFactory, r ServiceRouting) (webhook.ServiceResolver, error) {
	resolver := &serviceResolver{services: f.Core().V1().Services().Lister(), self: r.Self}
	if r.Endpoints {
		var err error
		if resolver.endpoints, err = proxy.NewEndpointSliceIndexerGetter(f.Discovery().V1().EndpointSlices()); err != nil {
			return nil, err
		}
	}
	return resolver, nil
}

type serviceResolver struct {
	services  corelisters.ServiceLister
	endpoints proxy.EndpointSliceGetter // nil to use cluster IPs
	self      *url.URL
}

func (r *serviceResolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	switch {
	case r.self != nil && namespace == "default" && name == "kubernetes" && port == 443:
		return r.self, nil
	case r.endpoints != nil:
		return proxy.ResolveEndpoint(r.services, r.endpoints, namespace, name, port)
	default:
		return proxy.ResolveCluster(r.services, namespace, name, port)
	}
}
