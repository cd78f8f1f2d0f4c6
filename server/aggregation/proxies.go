package aggregation

import (
	"net/http"
	"net/url"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	proxyutil "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/transport"
	"k8s.io/component-base/tracing"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-aggregator/pkg/controllers/openapiv3"
	"k8s.io/kube-aggregator/pkg/controllers/status/remote"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/sqube/sqube/server/watchtask"
)

// proxies are the proxies of all APIServices that name a Service. Upstream's registration controller updates them when APIServices
// change, one call at a time, and they notify the readers of discovery and OpenAPI.
type proxies struct {
	config      Config
	certificate dynamiccertificates.CertKeyContentProvider

	byTarget sync.Map // of *proxy or refusal, by schema.GroupVersion

	need   sync.Once
	needed chan struct{} // closed at the first APIService that names a Service
	// These exist once needed is closed.
	discovery apiserver.DiscoveryAggregationController
	openAPI   *openapiv3.AggregationController
	documents *documents
}

// AddAPIService adds or updates an APIService.
func (p *proxies) AddAPIService(s *apiregistrationv1.APIService) error {
	if s.Spec.Service == nil {
		p.RemoveAPIService(s.Name) // it may have named one before
		return nil
	}
	p.need.Do(func() {
		p.discovery = apiserver.NewDiscoveryManager(p.config.Discovery.WithSource(aggregated.AggregatorSource))
		p.documents = newDocuments()
		p.openAPI = openapiv3.NewAggregationController(p.documents)
		close(p.needed)
	})
	if p.config.Refusal != "" {
		p.byTarget.Store(helper.APIServiceNameToGroupVersion(s.Name), refusal(p.config.Refusal))
		return nil
	}
	certificate, key := p.certificate.CurrentCertKeyContent()
	made := newProxy(s, p.config, certificate, key)
	_, known := p.byTarget.Swap(helper.APIServiceNameToGroupVersion(s.Name), made)
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
	if _, known := p.byTarget.LoadAndDelete(helper.APIServiceNameToGroupVersion(name)); known && p.config.Refusal == "" {
		p.discovery.RemoveAPIService(name)
		p.openAPI.RemoveAPIService(name)
	}
}

// refusal answers requests that are not passed on. It is their message.
type refusal string

func (m refusal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	responsewriters.ErrorNegotiated(apierrors.NewServiceUnavailable(string(m)), scheme.Codecs, schema.GroupVersion{}, w, r)
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
			if a.isGroup(path, target.Group) && a.serveGroup(w, r, target.Group) {
				return
			}
			if remote, found := a.proxies.byTarget.Load(target); ok && found {
				watchtask.Whole(remote.(http.Handler)).ServeHTTP(w, r)
				return
			}
			local.ServeHTTP(w, r)
		}
	})
}

// isGroup reports whether a path, without one slash at its end, is that of a group's document here. With more slashes, the document
// of a built-in group is that of the local handler, as in kube-apiserver.
func (a *Aggregator) isGroup(path, group string) bool {
	document := "/apis/" + group
	return path == document || strings.TrimRight(path, "/") == document && !a.registrar.owns(group)
}

// Proxies reports whether another server serves a group version.
func (a *Aggregator) Proxies(target schema.GroupVersion) bool {
	_, found := a.proxies.byTarget.Load(target)
	return found
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

// proxy passes requests to the Service of one APIService, as that was when the proxy was created. Its own errors are plain text, like
// upstream's (kube-aggregator/pkg/apiserver/handler_proxy.go).
type proxy struct {
	service         apiregistrationv1.ServiceReference
	available       bool // the condition Available
	resolver        webhook.ServiceResolver
	transport       http.RoundTripper
	transportError  error // why there is no transport
	rejectRedirects bool
}

// newProxy returns the proxy of an APIService that names a Service. The certificate and its key are in PEM.
func newProxy(s *apiregistrationv1.APIService, c Config, certificate, key []byte) *proxy {
	p := &proxy{
		service:         *s.Spec.Service,
		available:       helper.IsAPIServiceConditionTrue(s, apiregistrationv1.Available),
		resolver:        c.Resolver,
		rejectRedirects: c.RejectRedirects,
	}
	config := remote.BuildTransportConfig(c.Dial, certificate, key, s)
	if c.Tracing != nil {
		config.Wrap(tracing.WrapperFor(c.Tracing))
	}
	p.transport, p.transportError = transport.New(config)
	return p
}

// assumeAvailable returns a proxy that ignores the condition Available.
func (p proxy) assumeAvailable() *proxy {
	p.available = true
	return &p
}

// ServeHTTP proxies a request as its user. The request must have been authorized.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !p.available:
		fail(w, r, "service unavailable", http.StatusServiceUnavailable)
		return
	case p.transportError != nil:
		fail(w, r, p.transportError.Error(), http.StatusInternalServerError)
		return
	}
	user, ok := request.UserFrom(r.Context())
	if !ok {
		fail(w, r, "missing user", http.StatusInternalServerError)
		return
	}
	address, err := p.resolver.ResolveEndpoint(p.service.Namespace, p.service.Name, *p.service.Port)
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "Service of an aggregated API has no address", "namespace", p.service.Namespace, "service", p.service.Name)
		fail(w, r, "service unavailable", http.StatusServiceUnavailable)
		return
	}
	location := &url.URL{Scheme: "https", Host: address.Host, Path: r.URL.Path, RawQuery: r.URL.Query().Encode()}
	outgoing, cancel := proxyutil.NewRequestForProxy(location, r)
	defer cancel()

	uid := ""
	if utilfeature.DefaultFeatureGate.Enabled(features.RemoteRequestHeaderUID) {
		uid = user.GetUID()
	}
	upgrade := httpstream.IsUpgradeRequest(r)
	if upgrade { // uses its own connection, which bypasses the round tripper that sets the headers
		transport.SetAuthProxyHeaders(outgoing, user.GetName(), uid, user.GetGroups(), user.GetExtra())
	}
	identified := transport.NewAuthProxyRoundTripper(user.GetName(), uid, user.GetGroups(), user.GetExtra(), p.transport)
	handler := utilproxy.NewUpgradeAwareHandler(location, identified, true, upgrade, unreachable{})
	handler.RejectForwardingRedirects = p.rejectRedirects
	utilflowcontrol.RequestDelegated(r.Context())
	handler.ServeHTTP(w, outgoing)
}

// unreachable responds to requests that could not be proxied.
type unreachable struct{}

func (unreachable) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// fail responds to a request that is not proxied, and counts it.
func fail(w http.ResponseWriter, r *http.Request, message string, code int) {
	http.Error(w, message, code)
	if info, ok := request.RequestInfoFrom(r.Context()); ok {
		metrics.RecordRequestTermination(r, info, "aggregator", code)
	}
}
