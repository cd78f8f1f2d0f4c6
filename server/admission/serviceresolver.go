package admission

import (
	"net/url"

	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// NewServiceResolver returns a resolver that finds addresses of services in informers, for admission and conversion webhooks. Its
// errors say which service or endpoint is missing. With toEndpoints, it returns ready endpoints instead of cluster IPs
// (--enable-aggregator-routing), for machines that do not route cluster IPs. self is this server's own URL, for the service
// kubernetes in default. It may be nil.
func NewServiceResolver(f informers.SharedInformerFactory, toEndpoints bool, self *url.URL) (webhook.ServiceResolver, error) {
	resolver := &serviceResolver{services: f.Core().V1().Services().Lister(), self: self}
	if toEndpoints {
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
