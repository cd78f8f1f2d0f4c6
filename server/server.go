// Package server puts a Kubernetes API server together from its parts.
//
//	client ──TLS──► filters ──► aggregation ──► routes ──┬─► handlers ──► resources ──┐
//	                   ▲             │                   ├─► crd ─────────────────────┼─► sqlstore
//	                loopback         ▼                   └─► openapi, health, …       │
//	                   ▲        other servers                                         │
//	                   └── bootstrap, controllers, admission ◄────────────────────────┘
//
// New builds everything and sends no request; Run serves until its context
// ends. In-process clients go through the same filters and handlers as others,
// over a transport that is no network.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	handlersmetrics "k8s.io/apiserver/pkg/endpoints/handlers/metrics"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/server/egressselector"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	flowcontrolmetrics "k8s.io/apiserver/pkg/util/flowcontrol/metrics"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/capabilities"
	"k8s.io/kubernetes/pkg/controlplane/controller/clusterauthenticationtrust"
	"k8s.io/kubernetes/pkg/serviceaccount"
	netutils "k8s.io/utils/net"

	"github.com/sqube/sqube/server/access"
	"github.com/sqube/sqube/server/admission"
	"github.com/sqube/sqube/server/aggregation"
	"github.com/sqube/sqube/server/audit"
	"github.com/sqube/sqube/server/bootstrap"
	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/connections"
	"github.com/sqube/sqube/server/controllers"
	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/encryption"
	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/server/loopback"
	"github.com/sqube/sqube/server/openapi"
	"github.com/sqube/sqube/server/pki"
	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// Server is an API server on one store.
type Server struct {
	options  *Options
	id       string // among the servers of the cluster
	store    *sqlstore.Store
	pki      *pki.PKI
	serving  *pki.Serving
	loopback *loopback.Transport
	// informers are shared by all in-process clients.
	informers informers.SharedInformerFactory

	encryption    *encryption.Encryption
	access        *access.Authentication
	audit         *audit.Log
	admission     *admission.Chain
	resources     *resources.Built
	crd           *crd.Server
	aggregation   *aggregation.Aggregator
	bootstrap     *bootstrap.Bootstrap
	fairness      utilflowcontrol.Interface // nil where it is switched off
	objectCounter *objectCounter
	controllers   controllers.Config
	connections   *connections.Connections

	handler     http.Handler
	inFlight    *inFlight    // requests to handler
	debugSocket net.Listener // nil without --debug-socket-path
	outbound    outbound
	phase       phase
}

// New builds a server on store, with its keys under o.DataDir, which are made
// where they are missing. o must be complete. An error names the file or the
// flag that has to change.
func New(ctx context.Context, o *Options, store *sqlstore.Store) (*Server, error) {
	o.Metrics.Apply() // it does not change what is registered
	capabilities.Setup(o.AllowPrivileged, o.MaxConnectionBytesPerSec)
	s := &Server{options: o, store: store, objectCounter: newObjectCounter(), loopback: loopback.New(), connections: connections.New(), phase: newPhase()}
	serviceIP, err := netutils.GetIndexedIP(&o.serviceRange, 1)
	if err != nil {
		return nil, fmt.Errorf("--service-cluster-ip-range %s has no usable address: %w", o.ServiceClusterIPRange, err)
	}
	if s.debugSocket, err = listenProfiling(o.Features.DebugSocketPath); err != nil {
		return nil, err
	}
	// The address tells servers on one host apart.
	if s.id, err = bootstrap.ServerID(o.URL()); err != nil {
		return nil, err
	}
	if s.outbound, err = newOutbound(o, s.id); err != nil {
		return nil, err
	}
	if s.encryption, err = encryption.Load(o.Encryption, s.id); err != nil {
		return nil, err
	}
	shared, err := sharedkeys.Open(ctx, store, o.sealer)
	if err != nil {
		return nil, err
	}
	s.pki, err = pki.Ensure(ctx, o.DataDir, pki.Options{BindAddress: o.Serving.BindAddress, ServiceIP: serviceIP, Server: o.URL(), InMemory: o.InMemory, ServingCertFile: o.Serving.ServerCert.CertKey.CertFile, ExtraNames: extraNames(o), SharedStore: shared})
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(s.loopback.Config())
	if err != nil {
		return nil, err
	}
	slimmer := &podSlimmer{whole: o.Scheduler != nil || controllers.Selects(o.Controllers, o.OtherControllers)}
	s.informers = informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(slimmer.transform))
	b := &builder{Server: s, client: client, storage: s.objectCounter.decorate(s.encryption.Storage(apistorage.Decorator(store, resources.Kinds)))}
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func extraNames(o *Options) []string {
	if o.AdvertiseAddress == nil {
		return o.TLSNames
	}
	return slices.Concat(o.TLSNames, []string{o.AdvertiseAddress.String()})
}

// builder holds what the parts need of each other while they are built.
type builder struct {
	*Server
	client        kubernetes.Interface
	authorization *access.Authorization
	accounts      *access.ServiceAccounts
	versions      *serverstorage.ResourceConfig
	services      webhook.ServiceResolver
	self          *rest.Config // reaches webhooks that name this server, which passes their requests on
	apis          aggregated.ResourceManager
	proxy         *http.Transport
	storage       generic.StorageDecorator
}

// build builds the parts in the order in which they need each other.
func (b *builder) build(ctx context.Context) error {
	for _, step := range []func(context.Context) error{b.buildAccess, b.buildAdmission, b.buildResources, b.buildCustomResources, b.buildBackground, b.buildHandler} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) buildAccess(ctx context.Context) (err error) {
	o, keys := b.options, b.pki
	if err := o.Access.Complete(access.Files{ClientCA: keys.CA.CertFile, FrontProxyCA: keys.FrontProxyCA.CertFile, ServiceAccountKey: keys.ServiceAccountKey}); err != nil {
		return err
	}
	if err := o.Access.Validate(); err != nil {
		return err
	}
	if b.audit, err = audit.New(o.Audit, b.outbound.egress); err != nil {
		return err
	}
	cluster := access.Cluster{Client: b.client, Informers: b.informers, ServerID: b.id, Egress: b.outbound.egress}
	if b.accounts, err = access.NewServiceAccounts(ctx, wait.ContextForChannel(b.phase.drained), o.Access); err != nil {
		return err
	}
	if b.access, err = access.NewAuthentication(ctx, o.Access, b.accounts, cluster); err != nil {
		return err
	}
	if b.authorization, err = access.NewAuthorization(ctx, o.Access, cluster); err != nil {
		return err
	}
	pair := keys.Serving
	if given := o.Serving.ServerCert.CertKey; given.CertFile != "" {
		pair = pki.Pair{CertFile: given.CertFile, KeyFile: given.KeyFile}
	}
	b.serving, err = pki.NewServing(pki.ServingConfig{Pair: pair, Named: o.sni(), ClientCA: b.access.ClientCA, TLS: o.tls})
	return err
}

func (b *builder) buildAdmission(context.Context) (err error) {
	if b.versions, err = resources.ParseRuntimeConfig(b.options.RuntimeConfig); err != nil {
		return err
	}
	// As upstream: what is behind a pod or service address can't be expected
	// to have a certificate for it.
	b.proxy = utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}})
	if b.proxy.DialContext, err = b.outbound.dialer(egressselector.Cluster); err != nil {
		return err
	}
	routing := admission.ServiceRouting{Endpoints: b.options.Aggregation.EndpointRouting}
	if routing.Self, err = url.Parse(b.options.URL()); err != nil {
		return err
	}
	if b.services, err = admission.NewServiceResolver(b.informers, routing); err != nil {
		return err
	}
	ca, err := os.ReadFile(b.pki.CA.CertFile)
	if err != nil {
		return err
	}
	own := b.pki.Serving // whatever --tls-cert-file shows to others
	b.self = b.loopback.SecureConfig(func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(own.CertFile, own.KeyFile)
		return &pair, err
	}, ca)
	b.admission, err = admission.New(admission.Config{
		Options: b.options.Admission, Loopback: b.loopback.Config(), Client: b.client, Informers: parameterInformers{b.informers},
		Authorizer: b.authorization.Authorizer, Resources: b.versions, Services: b.services, ProxyTransport: b.proxy, Self: b.self,
		ServerID: b.id, Drained: b.phase.drained, Egress: b.outbound.egress, Tracing: b.outbound.tracing,
	})
	return err
}

func (b *builder) buildResources(context.Context) error {
	o := b.options
	options, err := resources.NewRESTOptions(b.versions, b.storage)
	if err != nil {
		return err
	}
	options.DeleteCollectionWorkers = o.DeleteCollectionWorkers
	b.resources, err = resources.New(resources.Config{
		RESTOptions: options, Versions: b.versions, Loopback: b.loopback.Config(), Informers: b.informers,
		Services: resources.Services{IPRange: o.serviceRange, SecondaryIPRange: o.second, NodePorts: o.ServiceNodePortRange},
		ServiceAccounts: resources.ServiceAccounts{
			Issuer: b.accounts.Generator, Audiences: b.access.Audiences, MaxExpiration: b.accounts.MaxExpiration,
			ExtendExpiration: b.accounts.ExtendExpiration, MaxExtendedDuration: b.accounts.MaxExtendedExpiration,
		},
		Kubelet: b.kubelet(), ProxyTransport: b.proxy,
		Authenticator: b.access.Authenticator, Authorizer: b.authorization.Authorizer, RuleResolver: b.authorization.Rules,
		EventTTL: o.EventTTL, NewerVersions: o.EmulationForwardCompatible, NewerConfigured: o.RuntimeConfigForwardCompatible,
	})
	return err
}

func (b *builder) buildCustomResources(context.Context) (err error) {
	o := b.options
	b.apis = aggregated.NewResourceManager("apis")
	b.crd, err = crd.New(crd.Config{
		Storage: b.storage, Loopback: b.loopback.Config(), Admission: b.admission.Interface, Authorizer: b.authorization.Authorizer,
		Discovery: b.apis,
		Webhooks: crd.Webhooks{
			Services:       b.services,
			Authentication: webhook.NewDefaultAuthenticationInfoResolverWrapper(b.proxy, b.outbound.egress, b.self, b.outbound.tracing),
		},
		Limits:     crd.Limits{RequestTimeout: o.RequestTimeout, MinRequestTimeout: o.MinRequestTimeout, MaxRequestBodyBytes: o.MaxRequestBodyBytes, DeleteCollectionWorkers: o.DeleteCollectionWorkers},
		SoleServer: !o.SharedDatastore,
		Complete:   func() bool { return b.aggregation.HasSynced() },
	})
	if err != nil {
		return err
	}
	if err := b.admission.FollowDefinitions(b.crd.Informer().Informer()); err != nil {
		return err
	}
	dial, err := b.outbound.toServices()
	if err != nil {
		return err
	}
	o.Aggregation.Complete(b.pki.FrontProxyClient.CertFile, b.pki.FrontProxyClient.KeyFile)
	config := aggregation.Config{
		Options: o.Aggregation, Loopback: b.loopback.Config(), Informers: b.informers, Resolver: b.services,
		Discovery: b.apis, BuiltIn: b.builtIn(), Definitions: b.crd.Informer(), Dial: dial,
	}
	if b.outbound.traced {
		config.Tracing = b.outbound.tracing
	}
	b.aggregation, err = aggregation.New(config)
	return err
}

// builtIn lists the group versions that are served and not custom.
func (b *builder) builtIn() []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, group := range append(b.resources.Groups, b.crd.Group()) {
		for _, version := range group.PrioritizedVersions {
			if len(group.VersionedResourcesStorageMap[version.Version]) > 0 {
				versions = append(versions, version)
			}
		}
	}
	return versions
}

func (b *builder) buildBackground(context.Context) (err error) {
	o := b.options
	endpoint := bootstrap.Endpoint{Address: o.AdvertiseAddress, Port: o.Serving.BindPort}
	if o.EndpointReconciler == noEndpoint {
		endpoint.Address = nil
	} else if endpoint.Address == nil {
		endpoint.Address = bootstrap.AdvertiseAddress(o.Serving.BindAddress)
	}
	if o.SharedDatastore {
		endpoint.Lease = bootstrap.EndpointLease
	}
	if o.Features.EnablePriorityAndFairness && o.MaxInFlight+o.MaxMutatingInFlight > 0 {
		b.fairness = utilflowcontrol.New(b.informers, b.client.FlowcontrolV1(), o.MaxInFlight+o.MaxMutatingInFlight)
	}
	headers := b.access.RequestHeader
	b.bootstrap, err = bootstrap.New(bootstrap.Config{
		Loopback: b.loopback.Config(), Informers: b.informers, ServerID: b.id, KubeletClient: pki.KubeletClientName,
		Services: bootstrap.Services{IPRange: o.serviceRange, SecondaryIPRange: o.second, NodePort: o.KubernetesServiceNodePort, Repair: b.resources.Repair},
		Endpoint: endpoint,
		Authentication: clusterauthenticationtrust.ClusterAuthenticationInfo{
			ClientCA:                         b.access.UserCA,
			RequestHeaderUsernameHeaders:     headers.UsernameHeaders,
			RequestHeaderUIDHeaders:          headers.UIDHeaders,
			RequestHeaderGroupHeaders:        headers.GroupHeaders,
			RequestHeaderExtraHeaderPrefixes: headers.ExtraHeaderPrefixes,
			RequestHeaderAllowedNames:        headers.AllowedClientNames,
			RequestHeaderCA:                  headers.CAContentProvider,
		},
	})
	if err != nil {
		return err
	}
	// Pods verify the server with this bundle: its own authority, or what the
	// operator's certificate was signed with as far as its chain tells.
	rootCA, err := os.ReadFile(b.pki.CA.CertFile)
	if given := o.Serving.ServerCert.CertKey.CertFile; err == nil && given != "" {
		var chain []byte
		if chain, err = os.ReadFile(given); err == nil {
			rootCA = append(rootCA, chain...)
		}
	}
	if err != nil {
		return err
	}
	settings := o.ControllerSettings
	if settings == nil {
		if settings, err = controllers.DefaultSettings(); err != nil {
			return err
		}
	}
	b.controllers = controllers.Config{
		Selection: o.Controllers, Settings: settings, Others: o.OtherControllers, Scheduler: o.Scheduler,
		Cluster:  controllers.Cluster{CACertFile: b.pki.CA.CertFile, CAKeyFile: b.pki.CA.KeyFile},
		Loopback: b.loopback.Config(), Informers: b.informers, InformersStop: b.phase.drained,
		Discovery: b.apis, RootCA: rootCA, ServiceAccountKey: b.accounts.Key,
	}
	b.registerCoordination()
	serviceaccount.RegisterMetrics()
	limitPatches(b.options.MaxRequestBodyBytes)
	metrics.Register()
	handlersmetrics.Register()
	flowcontrolmetrics.Register()
	return registerMetrics()
}

var patchLimit sync.Mutex

// limitPatches has a JSON patch copy no more than a request may hold (as upstream). It holds for the process.
func limitPatches(limit int64) {
	patchLimit.Lock()
	defer patchLimit.Unlock()
	if jsonpatch.AccumulatedCopySizeLimit != limit { // or a server that runs would see it written
		jsonpatch.AccumulatedCopySizeLimit = limit
	}
}

func (b *builder) buildHandler(context.Context) error {
	groups := append(b.resources.Groups, b.crd.Group())
	converter, err := resources.NewTypeConverter()
	if err != nil {
		return err
	}
	options, err := resources.NewRESTOptions(b.versions, b.storage)
	if err != nil {
		return err
	}
	documents, err := openapi.New(openapi.Config{BuiltIn: b.builtIn(), Definitions: b.crd.Definitions(), Remotes: b.aggregation.Documents})
	if err != nil {
		return err
	}
	built, err := handlers.New(handlers.Config{
		Groups: groups, Serializer: codecs.Serving(), Admission: b.admission.Interface, Authorizer: b.authorization.Authorizer,
		TypeConverter: converter, EquivalentResources: resources.EquivalentResources(options),
		MaxRequestBodyBytes: b.options.MaxRequestBodyBytes, MinRequestTimeout: b.options.MinRequestTimeout,
		Discovery: discovery.DefaultAddresses{DefaultAddress: b.address()}, APIs: b.apis,
		Custom: b.crd.Handler(), CustomConversionFailures: b.crd.ConversionFailures,
		DatastoreFailures: b.store.Failures,
	})
	if err != nil {
		return err
	}
	openID, err := b.accounts.OpenIDHandlers(b.address())
	if err != nil {
		openID = nil // an issuer without https has no discovery documents, and needs none
	}
	c := &chain{options: b.options, serializer: codecs.Serving(), authentication: b.access, authorizer: b.authorization.Authorizer, audit: b.audit, fairness: b.fairness, counts: b.objectCounter.tracker, connections: b.connections, serves: built.Serves, serving: b.phase.serving, outbound: b.outbound}
	handler := c.wrap(b.aggregation.Handler(checkManager(b.routes(built, documents, openID))))
	b.inFlight = newInFlight(b.options, b.phase.serving.Done())
	b.handler = b.inFlight.count(handler)
	b.loopback.SetHandler(handler)
	return nil
}

// address is the host and port by which clients elsewhere know the server.
func (b *builder) address() string {
	port := fmt.Sprint(b.options.Serving.BindPort)
	if name := b.options.ExternalHost; name != "" {
		if _, _, err := net.SplitHostPort(name); err == nil {
			return name
		}
		return net.JoinHostPort(name, port)
	}
	host := b.options.AdvertiseAddress
	if host == nil {
		host = bootstrap.AdvertiseAddress(b.options.Serving.BindAddress)
	}
	if host == nil {
		host = net.IPv4(127, 0, 0, 1)
	}
	return net.JoinHostPort(host.String(), port)
}

var errDatastore = errors.New("the datastore does not answer")
