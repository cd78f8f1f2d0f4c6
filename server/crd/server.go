package crd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/apiapproval"
	"k8s.io/apiextensions-apiserver/pkg/controller/establish"
	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	"k8s.io/apiextensions-apiserver/pkg/controller/nonstructuralschema"
	"k8s.io/apiextensions-apiserver/pkg/controller/status"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/registry/generic"
	registry "k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/notfoundhandler"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/server/startup"
	"github.com/sqube/sqube/server/watchtask"
)

// Server serves definitions and custom resources.
type Server struct {
	group     *genericapiserver.APIGroupInfo
	client    statusClient
	running   *informer.Informer                         // which informer is
	informer  informers.CustomResourceDefinitionInformer // without schemas
	storage   generic.StorageDecorator
	whole     wholeDefinitions
	inUse     *inUse
	keep      time.Duration
	catalog   catalog
	published *publisher
	refused   *refusals

	// resources is upstream's handler. It has no exported type.
	resources interface {
		http.Handler
		finalizer.CRClientGetter
	}
	reads        *reads
	changed      changes // of what the informer has
	establishing *establish.EstablishingController
	// conversionFailures counts the failures of the webhooks that resources calls.
	conversionFailures conversionFailures
	notFound           http.Handler
	defined            chan struct{} // closed when there has been a definition
	started            chan struct{} // closed when what Run runs is running
}

// New builds the server without starting it. Requests for custom resources get 503 until Run has read the definitions.
func New(c Config) (*Server, error) {
	group, err := NewGroup(c.Storage)
	if err != nil {
		return nil, err
	}
	client, err := clientset.NewForConfig(rest.AddUserAgent(rest.CopyConfig(c.Loopback), "apiextensions"))
	if err != nil {
		return nil, fmt.Errorf("build the loopback client of custom resources: %w", err)
	}
	slim, err := newSlimInformer(c)
	if err != nil {
		return nil, err
	}
	factory := externalversions.NewSharedInformerFactory(client, c.Resync)
	factory.InformerFor(&apiextensionsv1.CustomResourceDefinition{}, func(clientset.Interface, time.Duration) cache.SharedIndexInformer { return slim })
	whole := wholeDefinitions{group.VersionedResourcesStorageMap["v1"]["customresourcedefinitions"].(registry.Getter)}
	s := &Server{
		defined:  make(chan struct{}),
		started:  make(chan struct{}),
		group:    group,
		client:   statusClient{client.ApiextensionsV1(), whole},
		running:  slim,
		informer: factory.Apiextensions().V1().CustomResourceDefinitions(),
		storage:  c.Storage,
		whole:    whole,
		keep:     cmp.Or(c.KeepUnused, keepUnused),
	}
	s.inUse = &inUse{CustomResourceDefinitionInformer: s.informer, whole: whole, byName: map[string]*usedDefinition{}}
	if s.catalog, err = newCatalog(s.informer.Informer()); err != nil {
		return nil, err
	}
	s.notFound = notfoundhandler.New(codecs.General(), func(context.Context) bool {
		select {
		case <-c.Complete:
			return s.HasSynced()
		default:
			return false
		}
	})
	s.establishing = establish.NewEstablishingController(s.informer, s.client)

	options := customResourceOptions(readFormerVersions(closeWatchesOnDestroy(c.Storage), s.informer.Lister()))
	options.DeleteCollectionWorkers = c.DeleteCollectionWorkers
	s.resources, err = apiserver.NewCustomResourceDefinitionHandler(
		nil, nil, // discovery is served elsewhere
		seen{s.inUse, withoutWait},
		s.notFound,
		options,
		c.Admission,
		s.establishing,
		c.Services,
		s.conversionFailures.wrap(c.Authentication),
		1, // a higher number delays every new definition by 5 s
		c.Authorizer,
		c.RequestTimeout,
		c.MinRequestTimeout,
		// Not nil, or custom resources would be merged without their schemas. It can be empty, because upstream's content
		// (the meta types) is in each definition's own document too.
		map[string]*spec.Schema{},
		c.MaxRequestBodyBytes,
	)
	if err != nil {
		return nil, fmt.Errorf("build the handler of custom resources: %w", err)
	}
	converters, err := conversion.NewCRConverterFactory(c.Services, c.Authentication)
	if err != nil {
		return nil, fmt.Errorf("build the conversion of custom resources: %w", err)
	}
	s.reads = &reads{
		definitions: s.informer.Lister(), storages: s.resources, converters: converters, minTimeout: c.MinRequestTimeout,
		others: watchtask.Whole(s.resources).ServeHTTP, made: map[string]readHandlers{},
	}
	if err := s.reads.follow(s.informer.Informer(), &s.changed); err != nil {
		return nil, err
	}
	s.inUse.forgotten = s.reads.forget
	define := sync.OnceFunc(func() { close(s.defined) })
	if !c.Alone {
		define()
	} else if _, err := s.informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { define() }}); err != nil {
		return nil, fmt.Errorf("watch custom resource definitions: %w", err)
	}
	if _, err := s.informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: s.establish}); err != nil {
		return nil, fmt.Errorf("watch custom resource definitions: %w", err)
	}
	if s.refused, err = newRefusals(s); err != nil {
		return nil, err
	}
	if s.published, err = newPublisher(s.informer.Informer(), s.catalog, c.Discovery); err != nil {
		return nil, err
	}
	return s, nil
}

// Group is apiextensions.k8s.io, to be served like the built-in groups.
func (s *Server) Group() *genericapiserver.APIGroupInfo { return s.group }

// Established lists the established definitions by name, without schemas. They are shared and must not be changed.
func (s *Server) Established() []*apiextensionsv1.CustomResourceDefinition {
	return established(s.catalog.indexer.List())
}

// Whole returns the current definition, with its schemas.
func (s *Server) Whole(ctx context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	return s.whole.read(ctx, name)
}

// InUse returns how many definitions have their schemas in memory.
func (s *Server) InUse() int { return s.inUse.count() }

// Informer watches the definitions, without schemas. Run starts it.
func (s *Server) Informer() informers.CustomResourceDefinitionInformer { return s.informer }

// Defined is closed when there has been a definition, or what handles definitions doesn't wait for the first one.
func (s *Server) Defined() <-chan struct{} { return s.defined }

// Defines reports whether there is a definition of the resource.
func (s *Server) Defines(resource schema.GroupResource) bool {
	_, err := s.informer.Lister().Get(resource.String())
	return err == nil
}

// ConversionFailures returns how often webhooks have failed to convert objects of the group.
func (s *Server) ConversionFailures(group string) uint64 {
	s.conversionFailures.mu.Lock()
	defer s.conversionFailures.mu.Unlock()
	return s.conversionFailures.groups[group]
}

// HasSynced reports whether every definition that existed when the server started is served and published in discovery.
// kube-apiserver reports this as the health check poststarthook/crd-informer-synced.
func (s *Server) HasSynced() bool {
	select {
	case <-s.published.synced:
		return true
	default:
		return false
	}
}

// Wait returns when HasSynced is true, or false when ctx ends.
func (s *Server) Wait(ctx context.Context) bool {
	select {
	case <-s.published.synced:
		return true
	case <-ctx.Done():
		return false
	}
}

// keepUnused is how long what was made of a definition stays in memory after the last request for its resource.
const keepUnused = 5 * time.Minute

// workers is how many definitions a controller handles at once, like kube-apiserver. naming and establishing handle one.
const workers = 5

// Run reads the definitions and, from the first one on if Config.Alone is set, runs their controllers over the loopback client until ctx
// ends. It returns when all of them have ended. It must be called only once.
//
//	naming               decides which definition gets a name, in status.acceptedNames
//	establishing         lets definitions be served once their names are accepted
//	nonstructuralschema  reports schemas that are not structural
//	apiapproval          reports *.k8s.io groups without approval
//	finalizer            deletes custom resources before their definition
//	refusals             says of definitions in sqube's own API groups that they are not served
func (s *Server) Run(ctx context.Context) {
	s.running.Start(ctx)
	var running sync.WaitGroup
	running.Go(func() { s.published.run(ctx) })
	running.Go(func() {
		select {
		case <-s.defined:
		case <-ctx.Done(): // they end at once, and with them their queues
		}
		s.control(ctx)
	})
	close(s.started)
	running.Wait()
	s.running.Wait()
}

// establish queues a definition whose names are accepted and that is not established, since the server was stopped in between. Upstream's handler
// queues only those that change, so that such a definition waits for the next resync.
func (s *Server) establish(object any) {
	d := object.(definition)
	if apihelpers.IsCRDConditionTrue(d, apiextensionsv1.NamesAccepted) && !apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
		s.establishing.QueueCRD(d.Name, 0)
	}
}

// control runs the controllers until ctx ends.
func (s *Server) control(ctx context.Context) {
	naming := status.NewNamingConditionController(klog.FromContext(ctx), s.informer, s.client)
	nonStructural := nonstructuralschema.NewConditionController(seen{s.informer, s.whole.maybeUnstructured}, s.client)
	approval := apiapproval.NewKubernetesAPIApprovalPolicyConformantConditionController(s.informer, s.client)
	finalizing := finalizer.NewCRDFinalizer(s.informer, s.client, s.resources)
	var running sync.WaitGroup
	for _, run := range []func(context.Context){
		naming.RunWithContext,
		s.establishing.RunWithContext,
		func(ctx context.Context) { nonStructural.RunWithContext(workers, ctx) },
		func(ctx context.Context) { approval.RunWithContext(workers, ctx) },
		func(ctx context.Context) { finalizing.RunWithContext(workers, ctx) },
		func(ctx context.Context) { s.inUse.run(ctx, s.keep) },
		s.refused.run,
	} {
		running.Go(func() { run(ctx) })
	}
	running.Wait()
}

// Checks are kube-apiserver's health checks of custom resources, under its names. They pass once the start is complete.
func (s *Server) Checks() []healthz.HealthChecker {
	return []healthz.HealthChecker{
		startup.Check("poststarthook/start-apiextensions-informers", s.started, "not finished"),
		startup.Check("poststarthook/start-apiextensions-controllers", s.started, "not finished"),
		healthz.NamedCheck("poststarthook/crd-informer-synced", func(*http.Request) error {
			if !s.HasSynced() {
				return errors.New("custom resource definitions are still being read")
			}
			return nil
		}),
	}
}

// Config is what custom resources need from the rest of the server. All fields are required unless marked optional.
type Config struct {
	// Storage makes the storage.Interface of a resource: that of customresourcedefinitions in New, that of a custom resource on
	// first use. Its DestroyFunc is called after the definition has changed or been deleted.
	Storage generic.StorageDecorator
	// Loopback is the configuration of in-process clients of this server. The controllers use it once Run is called.
	Loopback *rest.Config
	// Admission admits changes to custom resources. (The handlers that serve Group admit changes to definitions.)
	Admission admission.Interface
	// Authorizer decides whether a user may create by updating.
	Authorizer authorizer.Authorizer
	// Discovery is where custom group versions are published.
	Discovery aggregated.ResourceManager
	// Services finds the address of a conversion webhook that is given as a Service.
	Services webhook.ServiceResolver
	// Authentication finds the credentials to present to a conversion webhook.
	Authentication webhook.AuthenticationInfoResolverWrapper
	// The server's flags of the same names. 0 for MaxRequestBodyBytes means no limit, and for DeleteCollectionWorkers 1.
	RequestTimeout, MinRequestTimeout time.Duration
	MaxRequestBodyBytes               int64
	DeleteCollectionWorkers           int
	// KeepUnused is how long what was made of a definition stays in memory after the last request for its resource; 0 means five
	// minutes.
	KeepUnused time.Duration
	// Resync is how often controllers process every definition again; 0 for only when it changes.
	Resync time.Duration
	// Feed feeds the informers.
	Feed *informer.Feed
	// Alone lets the controllers of definitions wait while there are none. It must be false if there may be other servers: one that has
	// just begun would delete the APIServices that another one has made for the first definition.
	Alone bool
	// Complete is closed when all other groups are served. Until then, requests for unknown resources get a 503.
	Complete <-chan struct{}
}
