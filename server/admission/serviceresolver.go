package admission

import (
	"net/url"

	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/kube-aggregator/pkg/apiserver"
)

// NewServiceResolver returns a resolver that finds addresses of services in informers, for admission and conversion webhooks. Its
// errors say which service or endpoint is missing. With toEndpoints, it returns ready endpoints instead of cluster IPs
// (--enable-aggregator-routing), for machines that do not route cluster IPs. self is this server's own URL, for the service
// kubernetes in default.
func NewServiceResolver(f informers.SharedInformerFactory, toEndpoints bool, self *url.URL) (webhook.ServiceResolver, error) {
	services := f.Core().V1().Services().Lister()
	resolver := apiserver.NewClusterIPServiceResolver(services)
	if toEndpoints {
		endpoints, err := proxy.NewEndpointSliceIndexerGetter(f.Discovery().V1().EndpointSlices())
		if err != nil {
			return nil, err
		}
		resolver = apiserver.NewEndpointServiceResolver(services, endpoints)
	}
	return apiserver.NewLoopbackServiceResolver(resolver, self), nil
}
