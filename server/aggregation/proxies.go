package aggregation

import (
	"net/http"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kube-aggregator/pkg/controllers/openapiv3"
)

// proxies are the proxies of all APIServices that name a Service. Upstream's registration controller updates them when APIServices
// change, one call at a time, and they notify the readers of discovery and OpenAPI.
type proxies struct {
	config      Config
	certificate dynamiccertificates.CertKeyContentProvider
	discovery   apiserver.DiscoveryAggregationController
	openAPI     *openapiv3.AggregationController

	mu       sync.RWMutex
	byTarget map[schema.GroupVersion]*proxy
}

func newProxies(c Config, certificate dynamiccertificates.CertKeyContentProvider, discovery apiserver.DiscoveryAggregationController, openAPI *openapiv3.AggregationController) *proxies {
	return &proxies{config: c, certificate: certificate, discovery: discovery, openAPI: openAPI, byTarget: map[schema.GroupVersion]*proxy{}}
}

// AddAPIService adds or updates an APIService.
func (p *proxies) AddAPIService(s *apiregistrationv1.APIService) error {
	if s.Spec.Service == nil {
		p.RemoveAPIService(s.Name) // it may have named one before
		return nil
	}
	certificate, key := p.certificate.CurrentCertKeyContent()
	made := newProxy(s, p.config, certificate, key)
	known := p.set(helper.APIServiceNameToGroupVersion(s.Name), made)
	p.discovery.AddAPIService(s, made.assumeAvailable())
	if known {
		p.openAPI.UpdateAPIService(made, s)
	} else {
		p.openAPI.AddAPIService(made, s)
	}
	return nil
}

// RemoveAPIService removes an APIService.
func (p *proxies) RemoveAPIService(name string) {
	if p.set(helper.APIServiceNameToGroupVersion(name), nil) {
		p.discovery.RemoveAPIService(name)
		p.openAPI.RemoveAPIService(name)
	}
}

// set sets the proxy of a group version, or takes it away. It reports whether there was one.
func (p *proxies) set(target schema.GroupVersion, to *proxy) (known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known = p.byTarget[target]
	if to == nil {
		delete(p.byTarget, target)
	} else {
		p.byTarget[target] = to
	}
	return known
}

func (p *proxies) get(target schema.GroupVersion) (*proxy, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	found, ok := p.byTarget[target]
	return found, ok
}

// Handler serves the list of groups, proxies requests for the groups of other servers, and calls local for all other requests.
func (a *Aggregator) Handler(local http.Handler) http.Handler {
	groups := aggregated.WrapAggregatedDiscoveryToHandler(http.HandlerFunc(a.serveGroups), a.aggregated, nil)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := strings.TrimSuffix(r.URL.Path, "/"); {
		case r.URL.Path == "/apis":
			groups.ServeHTTP(w, r)
		case path == "/apis": // with a trailing slash it has no aggregated form, like upstream
			a.serveGroups(w, r)
		default:
			target, ok := targetOf(path)
			if path == "/apis/"+target.Group && a.serveGroup(w, r, target.Group) {
				return
			}
			if proxy, remote := a.proxies.get(target); ok && remote {
				proxy.ServeHTTP(w, r)
				return
			}
			local.ServeHTTP(w, r)
		}
	})
}

// targetOf returns the group version of a path, without a version if the path has none. For the core group it is always v1.
func targetOf(path string) (target schema.GroupVersion, ok bool) {
	rest, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return schema.GroupVersion{Version: "v1"}, path == "/api" || strings.HasPrefix(path, "/api/")
	}
	target.Group, rest, _ = strings.Cut(rest, "/")
	target.Version, _, _ = strings.Cut(rest, "/")
	return target, true
}
