package server

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/server/egressselector"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sqube/sqube/server/admission"
	"github.com/sqube/sqube/server/aggregation"
	"github.com/sqube/sqube/server/controllers"
	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/server/resources"
)

// apis are the resources that the server serves: its own, custom ones, and those of other servers.
type apis struct {
	versions    *serverstorage.ResourceConfig // the built-in versions that are on
	admission   *admission.Chain
	resources   *resources.Built
	crd         *crd.Server
	history     *timeMachine
	groups      []*handlers.Group          // the built-in ones, apiextensions.k8s.io and history.sqube.io
	discovery   aggregated.ResourceManager // of /apis
	aggregation *aggregation.Aggregator
	installed   chan struct{} // closed once requests for aggregated APIs are proxied
}

func newAPIs(b *base, s *security) (_ *apis, err error) {
	a := &apis{discovery: aggregated.NewResourceManager("apis"), installed: make(chan struct{})}
	if a.versions, err = resources.ParseRuntimeConfig(b.options.RuntimeConfig); err != nil {
		return nil, err
	}
	hooks, err := newWebhookClient(b)
	if err != nil {
		return nil, err
	}
	if a.admission, err = newAdmission(b, s, a, hooks); err != nil {
		return nil, err
	}
	if a.resources, err = newResources(b, s, a.versions, hooks.transport); err != nil {
		return nil, err
	}
	b.ends("storage", func() error { a.resources.Destroy(); return nil })
	if a.crd, err = newCustomResources(b, s, a.admission, a.discovery, hooks, a.installed); err != nil {
		return nil, err
	}
	definitions, err := handlers.GroupOf(a.crd.Group())
	if err != nil {
		return nil, err
	}
	a.groups = append(a.resources.Groups, definitions)
	a.history = newTimeMachine(b, s, a)
	history, err := handlers.GroupOf(a.history.group)
	if err != nil {
		return nil, err
	}
	a.groups = append(a.groups, history)
	if err := a.admission.FollowDefinitions(a.crd.Informer().Informer()); err != nil {
		return nil, err
	}
	a.aggregation, err = newAggregation(b, a, hooks)
	return a, err
}

// builtIn returns the group versions that are served, without those of custom resources.
func (a *apis) builtIn() []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, group := range a.groups {
		for _, version := range group.Versions {
			versions = append(versions, version.GroupVersion)
		}
	}
	return versions
}

// webhookClient is how the server reaches webhooks and other servers.
type webhookClient struct {
	services  webhook.ServiceResolver
	transport *http.Transport // to pods and Services
	self      *rest.Config    // reaches webhooks that name this server, which proxies their requests
}

func newWebhookClient(b *base) (c webhookClient, err error) {
	var dial utilnet.DialFunc // nil for Go's default, which has a time limit
	if b.outbound.objects != nil {
		if dial, err = b.outbound.objects.Lookup(egressselector.Cluster.AsNetworkContext()); err != nil {
			return c, err
		}
	}
	// Like upstream: a server behind a pod or Service address can't be expected to have a certificate for it.
	c.transport = utilnet.SetTransportDefaults(&http.Transport{DialContext: dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}})
	self, err := url.Parse(b.options.URL())
	if err != nil {
		return c, err
	}
	if c.services, err = admission.NewServiceResolver(b.informers, b.options.Aggregation.EndpointRouting, self); err != nil {
		return c, err
	}
	ca, err := os.ReadFile(b.pki.CA.CertFile)
	if err != nil {
		return c, err
	}
	own := b.pki.Serving // even if --tls-cert-file names another certificate
	c.self = b.loopback.SecureConfig(func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(own.CertFile, own.KeyFile)
		return &pair, err
	}, ca)
	return c, nil
}

func newAdmission(b *base, s *security, a *apis, hooks webhookClient) (*admission.Chain, error) {
	chain, err := admission.New(admission.Config{
		Options: b.options.Admission, Loopback: b.loopback.Config(), Client: b.client, Informers: b.informers,
		Authorizer: s.authorization.Authorizer, Resources: a.versions, Services: hooks.services, ProxyTransport: hooks.transport, Self: hooks.self,
		ServerID: b.id, Drained: b.phase.running.Done(), Egress: b.outbound.objects, Tracing: b.outbound.tracing,
		Published: func(ctx context.Context) bool { return a.crd.Wait(ctx) }, // built after the chain
	})
	if fleet := b.options.Fleet; err == nil && fleet != nil {
		chain.Interface = fleet.Admission(chain.Interface, s.authorization.Authorizer)
	}
	return chain, err
}

func newResources(b *base, s *security, versions *serverstorage.ResourceConfig, transport *http.Transport) (*resources.Built, error) {
	o := b.options
	options, err := resources.NewRESTOptions(versions, b.storage)
	if err != nil {
		return nil, err
	}
	options.DeleteCollectionWorkers = o.DeleteCollectionWorkers
	return resources.New(resources.Config{
		RESTOptions: options, Versions: versions, Loopback: b.loopback.Config(), Informers: b.informers,
		ControllerManager: controllers.Selects(o.Controllers, o.OtherControllers), Scheduler: o.Scheduler != nil,
		Services: resources.Services{IPRange: o.serviceRange, SecondaryIPRange: o.secondRange, NodePorts: o.ServiceNodePortRange},
		ServiceAccounts: resources.ServiceAccounts{
			Issuer: s.accounts.Generator, Audiences: s.authentication.Audiences, MaxExpiration: s.accounts.MaxExpiration,
			ExtendExpiration: s.accounts.ExtendExpiration, MaxExtendedDuration: s.accounts.MaxExtendedExpiration,
		},
		Kubelet: o.kubelet(b.pki, b.outbound.objects), ProxyTransport: transport,
		Authenticator: s.authentication.Authenticator, Authorizer: s.authorization.Authorizer, RuleResolver: s.authorization.Rules,
		EventTTL: o.EventTTL, Repair: o.seldom(), NewerVersions: o.EmulationForwardCompatible, NewerConfigured: o.RuntimeConfigForwardCompatible,
	})
}

func newCustomResources(b *base, s *security, chain *admission.Chain, discovery aggregated.ResourceManager, hooks webhookClient, complete <-chan struct{}) (*crd.Server, error) {
	o := b.options
	return crd.New(crd.Config{
		Storage: b.storage, Loopback: b.loopback.Config(), Admission: chain.Interface, Authorizer: s.authorization.Authorizer,
		Discovery: discovery, Services: hooks.services,
		Authentication: webhook.NewDefaultAuthenticationInfoResolverWrapper(hooks.transport, b.outbound.objects, hooks.self, b.outbound.tracing),
		RequestTimeout: o.RequestTimeout, MinRequestTimeout: o.minRequestTimeout(),
		MaxRequestBodyBytes: o.MaxRequestBodyBytes, DeleteCollectionWorkers: o.DeleteCollectionWorkers,
		Complete: complete, KeepUnused: o.seldom(), Resync: o.resync(), Feed: b.feed, Alone: b.store.Alone(),
	})
}

func newAggregation(b *base, a *apis, hooks webhookClient) (*aggregation.Aggregator, error) {
	b.options.Aggregation.Complete(b.pki.FrontProxyClient.CertFile, b.pki.FrontProxyClient.KeyFile)
	config := aggregation.Config{
		Options: b.options.Aggregation, Loopback: b.loopback.Config(), Informers: b.informers, InformersStop: b.phase.running.Done(), Resolver: hooks.services,
		Discovery: a.discovery, BuiltIn: a.builtIn(), Definitions: a.crd.Informer(), Defined: a.crd.Defined(), Installed: a.installed,
		Dial: &transport.DialHolder{Dial: hooks.transport.DialContext}, InMemory: b.options.filesInMemory(), Resync: b.options.resync(), ReadOnly: b.options.ReadOnly != "",
		Feed: b.feed, Source: func() informer.Source {
			return versioned(b, a, apiregistrationv1.SchemeGroupVersion.WithResource("apiservices"), nil)
		},
	}
	if !b.options.mayCallServices() {
		config.Refusal = b.options.refusal("aggregated API servers", "'*'")
	}
	if b.outbound.traced {
		config.Tracing = b.outbound.tracing
	}
	return aggregation.New(config)
}
