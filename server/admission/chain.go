package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/admission/metrics"
	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	apiserverv1alpha1 "k8s.io/apiserver/pkg/apis/apiserver/v1alpha1"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/egressselector"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kube-aggregator/pkg/apiserver"
	controlplaneadmission "k8s.io/kubernetes/pkg/controlplane/apiserver/admission"
	kubeadmission "k8s.io/kubernetes/pkg/kubeapiserver/admission"
)

// mapperMaxAge is how long plugins may miss a new kind, or map a kind to an outdated resource, without [Chain.FollowDefinitions].
const mapperMaxAge = 30 * time.Second

// Config is what plugins need.
type Config struct {
	Options *Options

	// Loopback reaches the server's own API. Plugins look up kinds, schemas and objects through it, but only during requests: the
	// chain can be built before that API is served.
	Loopback *rest.Config
	// Client is over Loopback, and Informers over Client. The caller starts the informers. Until those that it needs have synced, a
	// plugin delays requests, and then rejects them.
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	// Published waits until the custom resources that existed at the start are in discovery, or until the context ends.
	Published func(context.Context) bool

	// Authorizer decides what a request may refer to (OwnerReferencesPermissionEnforcement, certificates, policies).
	Authorizer authorizer.Authorizer
	// Resources specifies which resources are served, and can therefore be limited by a quota.
	Resources serverstorage.APIResourceConfigSource

	// Services finds the addresses of webhooks' services, see [NewServiceResolver].
	Services webhook.ServiceResolver
	// ProxyTransport dials services.
	ProxyTransport *http.Transport
	// Egress connects to webhooks that are given by URL; nil to connect directly.
	Egress *egressselector.EgressSelector
	// Tracing records requests to webhooks.
	Tracing trace.TracerProvider
	// Self reaches this server, for webhooks that name the service kubernetes in default; see loopback.SecureConfig.
	Self *rest.Config

	// ServerID is the identity of this server process.
	ServerID string
	// Drained is closed when no more requests run. It stops what plugins have started.
	Drained <-chan struct{}
}

// Chain is the admission chain that every write passes.
type Chain struct {
	// Interface runs the plugins, with metrics for each plugin and each step.
	Interface admission.Interface
	mapper    *restmapper.DeferredDiscoveryRESTMapper
}

// New builds the chain. It returns an error if --admission-control-config-file or a file that it names is invalid, or if a plugin
// rejects its configuration.
func New(c Config) (*Chain, error) {
	names := c.Options.Names()
	scheme, err := configScheme()
	if err != nil {
		return nil, err
	}
	configs, err := admission.ReadAdmissionConfiguration(names, c.Options.kube.GenericAdmission.ConfigFile, scheme)
	if err != nil {
		return nil, fmt.Errorf("reading --admission-control-config-file: %w", err)
	}
	if configs, err = readConfigs(names, configs); err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.Client.Discovery()))
	shared, err := c.sharedInitializers()
	if err != nil {
		return nil, err
	}
	initializers, err := c.initializers(mapper, shared)
	if err != nil {
		return nil, err
	}
	all := plugins()
	created := &createdNamespaces{}
	own := &instances{created: created, config: c, plugins: all, configs: configs, initializers: func(c Config) (admission.PluginInitializers, error) {
		return c.initializers(mapper, shared)
	}}
	decorators := admission.Decorators{
		admission.DecoratorFunc(own.decorate), admission.DecoratorFunc(withReasons), admission.DecoratorFunc(metrics.WithControllerMetrics),
	}
	chain, err := all.NewFromPlugins(names, configs, lateInitializer{append(initializers, namespacesAreSeen{c.Client, created}), c.Informers, c.Drained}, decorators)
	if err != nil {
		return nil, fmt.Errorf("setting up admission plugins: %w", err)
	}
	return &Chain{Interface: metrics.WithStepMetrics(chain), mapper: mapper}, nil
}

// Run refreshes the plugins' view of resources until ctx ends. Start it when the API is served; kube-apiserver does so in the
// post-start hook start-apiserver-admission-initializer.
func (c *Chain) Run(ctx context.Context) {
	wait.UntilWithContext(ctx, func(context.Context) { c.mapper.Reset() }, mapperMaxAge)
}

// FollowDefinitions makes plugins look up kinds again when CustomResourceDefinitions change. Without it, as in kube-apiserver, a
// policy may have to wait 30 s until it can use objects of a new kind as parameters.
func (c *Chain) FollowDefinitions(definitions cache.SharedInformer) error {
	changed := func(any) { c.mapper.Reset() }
	_, err := definitions.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, after any) { changed(after) }, DeleteFunc: changed,
	})
	return err
}

// sharedInitializers give plugins what all their instances share: how webhooks are reached, and how resources are counted.
func (c Config) sharedInitializers() (admission.PluginInitializers, error) {
	controlPlane := controlplaneadmission.Config{
		LoopbackClientConfig: c.Self,
		ExternalInformers:    c.Informers,
		APIResourceConfig:    c.Resources,
	}
	webhookAndQuota, err := controlPlane.New(c.ProxyTransport, c.Egress, c.Services, c.Tracing)
	if err != nil {
		return nil, fmt.Errorf("setting up webhooks and quota: %w", err)
	}
	kube, err := (&kubeadmission.Config{}).New()
	if err != nil {
		return nil, fmt.Errorf("setting up admission plugins: %w", err)
	}
	return append(webhookAndQuota, kube...), nil
}

// initializers give each plugin what it needs, in kube-apiserver's order.
func (c Config) initializers(mapper *restmapper.DeferredDiscoveryRESTMapper, shared admission.PluginInitializers) (admission.PluginInitializers, error) {
	dynamicClient, err := dynamic.NewForConfig(c.Loopback)
	if err != nil {
		return nil, fmt.Errorf("making a client for admission plugins: %w", err)
	}
	all := admission.PluginInitializers{
		initializer.NewAPIServerIDInitializer(c.ServerID),
		initializer.New(c.Client, dynamicClient, c.Informers, c.Authorizer, utilfeature.DefaultFeatureGate,
			compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent),
			c.Drained, mapper),
	}
	all = append(all, shared...)
	return append(all, parametersAreStored{c.Informers, dynamicClient, parameterKinds{mapper, c.Client.Discovery(), c.Published, c.Drained}}), nil
}

// pluginConfigs are the configurations of plugins as they were at the start. An instance for a transaction has the same.
type pluginConfigs map[string][]byte

func readConfigs(names []string, from admission.ConfigProvider) (admission.ConfigProvider, error) {
	configs := pluginConfigs{}
	for _, name := range names {
		config, err := from.ConfigFor(name)
		if err != nil {
			return nil, err
		}
		if config == nil {
			continue
		}
		if configs[name], err = io.ReadAll(config); err != nil {
			return nil, fmt.Errorf("reading the configuration of admission plugin %s: %w", name, err)
		}
	}
	return configs, nil
}

// ConfigFor implements admission.ConfigProvider.
func (c pluginConfigs) ConfigFor(name string) (io.Reader, error) {
	config, ok := c[name]
	if !ok {
		return nil, nil
	}
	return bytes.NewReader(config), nil
}

// configScheme has the kinds that a file with admission configuration may have at its top level.
func configScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	return scheme, errors.Join(
		apiserverapi.AddToScheme(scheme),
		apiserverv1alpha1.AddToScheme(scheme),
		apiserverv1.AddToScheme(scheme),
	)
}

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
