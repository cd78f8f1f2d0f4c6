package aggregation

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	crdinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	"k8s.io/component-base/metrics/legacyregistry"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	apiservices "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/typed/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/informers/externalversions"
	apiregistrationinformers "k8s.io/kube-aggregator/pkg/client/informers/externalversions/apiregistration/v1"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
	localstatus "k8s.io/kube-aggregator/pkg/controllers/status/local"
	"k8s.io/kube-aggregator/pkg/controllers/status/metrics"
	remotestatus "k8s.io/kube-aggregator/pkg/controllers/status/remote"

	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/server/startup"
)

// workers is how many APIServices each controller handles at once, like kube-apiserver.
const workers = 5

// workers is 1 for a server that can be one of many in its process.
func (c *Config) workers() int {
	if c.InMemory {
		return 1
	}
	return workers
}

// Config is what the aggregation layer needs from the rest of the server. All fields are required unless marked optional.
type Config struct {
	*Options
	// Loopback reaches this server in process.
	Loopback *rest.Config
	// Informers watch Services and EndpointSlices. The caller starts them; those that are needed later stop with InformersStop.
	Informers     informers.SharedInformerFactory
	InformersStop <-chan struct{}
	// Resolver finds addresses of Services.
	Resolver webhook.ServiceResolver
	// Discovery is the aggregated discovery of /apis. The handlers of built-in and custom group versions add these.
	Discovery aggregated.ResourceManager
	// BuiltIn are the served group versions that are not custom.
	BuiltIn []schema.GroupVersion
	// Definitions watches CustomResourceDefinitions. The caller starts it.
	Definitions crdinformers.CustomResourceDefinitionInformer
	// Defined is closed once what handles definitions runs.
	Defined <-chan struct{}
	// Installed is closed by the Aggregator once requests for the APIServices that existed at the start are passed on.
	Installed chan struct{}
	// Dial connects to other servers.
	Dial *transport.DialHolder
	// Refusal is the answer to requests for other servers, which are then left out of discovery; "" if requests are passed on.
	Refusal string
	// ReadOnly is set if nothing can be written: APIServices are then as they are.
	ReadOnly bool
	// Tracing records requests to other servers. Optional.
	Tracing trace.TracerProvider
	// InMemory is that of pki.Options.
	InMemory bool
	// Feed feeds the informer of APIServices, from the source that Source returns.
	Feed   *informer.Feed
	Source func() informer.Source
	// Resync is how often the controllers reconcile every APIService; 0 for only when something changes.
	Resync time.Duration
}

// Aggregator is the aggregation layer of a server.
type Aggregator struct {
	client      apiservices.APIServicesGetter
	known       *informer.Informer // of APIServices
	informer    apiregistrationinformers.APIServiceInformer
	services    listers.APIServiceLister
	aggregated  aggregated.ResourceManager
	certificate *dynamiccertificates.DynamicCertKeyPairContent
	inMemory    bool
	registrar   *registrar
	gauges      *metrics.Metrics
	local       controller
	proxies     *proxies
	installing  *apiserver.APIServiceRegistrationController

	started    chan struct{} // closed when everything runs
	installed  chan struct{} // Config.Installed
	discovered chan struct{} // closed when the discovery of these APIServices' servers has been read
}

// New builds the aggregation layer, but does not start it. An error about the configuration names the flag or the file.
func New(c Config) (*Aggregator, error) {
	client, err := clientset.NewForConfig(rest.AddUserAgent(rest.CopyConfig(c.Loopback), "apiregistration"))
	if err != nil {
		return nil, fmt.Errorf("build the loopback client of APIServices: %w", err)
	}
	certificate, err := dynamiccertificates.NewDynamicServingContentFromFiles("aggregator-proxy-cert", c.ClientCertFile, c.ClientKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--proxy-client-cert-file: %w", err)
	}
	gauges, err := registeredMetrics()
	if err != nil {
		return nil, fmt.Errorf("register the metrics of APIServices: %w", err)
	}
	prioritize(c.Discovery)
	factory := externalversions.NewSharedInformerFactory(client, c.Resync)
	known := informer.New(apiregistrationinformers.NewAPIServiceInformer(client, 0, cache.Indexers{}),
		informer.Options{Name: "apiservices", Feed: c.Feed, Source: c.Source, Resync: c.Resync})
	factory.InformerFor(&apiregistrationv1.APIService{}, func(clientset.Interface, time.Duration) cache.SharedIndexInformer { return known })
	services := factory.Apiregistration().V1().APIServices()
	local, err := localstatus.New(&steady{APIServiceInformer: services}, client.ApiregistrationV1(), gauges)
	if err != nil {
		return nil, fmt.Errorf("build the controller of local APIServices: %w", err)
	}
	a := &Aggregator{
		client:      client.ApiregistrationV1(),
		known:       known,
		informer:    services,
		services:    services.Lister(),
		aggregated:  c.Discovery,
		certificate: certificate,
		inMemory:    c.InMemory,
		registrar:   newRegistrar(client, services, c),
		gauges:      gauges,
		local:       local,
		started:     make(chan struct{}),
		installed:   c.Installed,
		discovered:  make(chan struct{}),
	}
	a.proxies = &proxies{config: c, certificate: certificate, needed: make(chan struct{})}
	a.installing = apiserver.NewAPIServiceRegistrationController(services, a.proxies)
	certificate.AddListener(a.installing)
	return a, nil
}

// registeredMetrics creates and registers the metrics of availability, once per process.
var registeredMetrics = sync.OnceValues(func() (*metrics.Metrics, error) {
	m := metrics.New()
	return m, m.Register(legacyregistry.Register, legacyregistry.CustomRegister)
})

// Run runs the controllers until ctx ends, and returns when they have stopped. It must be called once.
//
//	registrar  writes the APIServices of this server's own group versions; not before later is closed, if it is not nil
//	local      writes the condition Available of its own APIServices; the same
//	installing updates the proxies when APIServices change
//
// From the first APIService that names a Service, these run, too:
//
//	remote     writes the condition Available of such APIServices
//	discovery  adds to discovery what the servers behind the proxies serve
//	openAPI    reads their OpenAPI documents
func (a *Aggregator) Run(ctx context.Context, later <-chan struct{}) {
	a.known.Start(ctx)
	var running sync.WaitGroup
	running.Go(func() { pki.Follow(ctx, a.certificate, a.inMemory) })
	if c := &a.proxies.config; !c.ReadOnly {
		running.Go(func() {
			if later == nil || wait(ctx, later) {
				running.Go(func() { a.local.Run(c.workers(), ctx.Done()) })
				a.registrar.run(ctx)
			}
		})
	}
	running.Go(func() { a.installing.Run(ctx.Done(), a.installed) })
	running.Go(func() {
		if !wait(ctx, a.installed) {
			return
		}
		discovered := a.discovered
		select {
		case <-a.proxies.needed:
		default:
			close(a.discovered)
			discovered = nil
		}
		if wait(ctx, a.proxies.needed) {
			a.runRemote(ctx, discovered)
		}
	})
	close(a.started)
	running.Wait()
	a.known.Wait()
}

// runRemote runs what handles the APIServices that name a Service until ctx ends. It closes discovered, unless that is nil, when the
// discovery of their servers has been read.
func (a *Aggregator) runRemote(ctx context.Context, discovered chan<- struct{}) {
	c := a.proxies.config
	services, endpoints := c.Informers.Core().V1().Services(), c.Informers.Discovery().V1().EndpointSlices()
	known := &steady{APIServiceInformer: a.informer}
	remote, err := remotestatus.New(known, services, endpoints, a.client, c.Dial, a.certificate.CurrentCertKeyContent, c.Resolver, a.gauges)
	if err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "Building the controller of remote APIServices failed")
		return
	}
	if err := a.proxies.documents.follow(services, endpoints); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "The Services of APIServices can't be followed")
	}
	c.Informers.Start(c.InformersStop)
	var running sync.WaitGroup
	running.Go(func() { a.proxies.discovery.Run(ctx.Done(), discovered) })
	if !c.ReadOnly {
		running.Go(func() { remote.Run(workers, ctx.Done()) })
	}
	if c.Resync > 0 {
		running.Go(func() { known.resync(ctx) })
	}
	running.Go(func() { a.proxies.openAPI.RunWithContext(ctx) })
	a.proxies.documents.run(ctx)
	running.Wait()
}

func wait(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// hooks are kube-apiserver's post-start hooks that only start something.
var hooks = []string{
	"aggregator-reload-proxy-client-cert",
	"start-kube-aggregator-informers",
	"apiservice-status-local-available-controller",
	"apiservice-status-remote-available-controller",
	"kube-apiserver-autoregistration",
	"apiservice-openapi-controller",
	"apiservice-openapiv3-controller",
}

// Checks are kube-apiserver's health checks of the aggregation layer, with its names. They pass once the start is complete.
func (a *Aggregator) Checks() []healthz.HealthChecker {
	checks := []healthz.HealthChecker{
		healthz.NamedCheck("autoregister-completion", func(*http.Request) error { return a.registrar.registered() }),
		startup.Check("poststarthook/apiservice-registration-controller", a.installed, "APIServices are still being read"),
		startup.Check("poststarthook/apiservice-discovery-controller", a.discovered, "the discovery of aggregated API servers is still being read"),
	}
	for _, hook := range hooks {
		checks = append(checks, startup.Check("poststarthook/"+hook, a.started, "not finished"))
	}
	return checks
}
