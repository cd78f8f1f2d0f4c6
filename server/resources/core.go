package resources

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/probe"
	"k8s.io/kubernetes/pkg/registry/core/componentstatus"
	configmapstore "k8s.io/kubernetes/pkg/registry/core/configmap/storage"
	endpointsstore "k8s.io/kubernetes/pkg/registry/core/endpoint/storage"
	eventstore "k8s.io/kubernetes/pkg/registry/core/event/storage"
	limitrangestore "k8s.io/kubernetes/pkg/registry/core/limitrange/storage"
	namespacestore "k8s.io/kubernetes/pkg/registry/core/namespace/storage"
	nodestore "k8s.io/kubernetes/pkg/registry/core/node/storage"
	pvstore "k8s.io/kubernetes/pkg/registry/core/persistentvolume/storage"
	pvcstore "k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim/storage"
	podstore "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	podtemplatestore "k8s.io/kubernetes/pkg/registry/core/podtemplate/storage"
	controllerstore "k8s.io/kubernetes/pkg/registry/core/replicationcontroller/storage"
	resourcequotastore "k8s.io/kubernetes/pkg/registry/core/resourcequota/storage"
	secretstore "k8s.io/kubernetes/pkg/registry/core/secret/storage"
	servicestore "k8s.io/kubernetes/pkg/registry/core/service/storage"
	serviceaccountstore "k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage"
)

// coreStorages collects the storages of the legacy core group by resource or resource/subresource.
type coreStorages struct {
	config   Config
	client   kubernetes.Interface
	storages map[string]rest.Storage
}

// newCoreGroup builds the legacy core group. Upstream's provider for it can't be used, since it keeps allocations in etcd.
func newCoreGroup(c Config, client kubernetes.Interface, allocators *serviceAllocators) (*genericapiserver.APIGroupInfo, error) {
	b := &coreStorages{config: c, client: client, storages: map[string]rest.Storage{}}
	for _, add := range []func() error{
		b.addPlain,
		b.addNamespaces,
		b.addReplicationControllers,
		func() error { return b.addWorkloads(allocators) },
	} {
		if err := add(); err != nil {
			return nil, fmt.Errorf("building the core group: %w", err)
		}
	}
	b.storages["componentstatuses"] = componentstatus.NewStorage(func() map[string]componentstatus.Server { return componentServers(c) })

	maps.DeleteFunc(b.storages, func(path string, _ rest.Storage) bool {
		resource, _, _ := strings.Cut(path, "/")
		return !c.Versions.ResourceEnabled(corev1.SchemeGroupVersion.WithResource(resource))
	})
	group := genericapiserver.NewDefaultAPIGroupInfo(corev1.GroupName, legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	if len(b.storages) > 0 {
		group.VersionedResourcesStorageMap["v1"] = b.storages
	}
	return &group, nil
}

// addPlain adds the resources that have no subresource, or only status.
func (b *coreStorages) addPlain() error {
	options := b.config.RESTOptions
	return errors.Join(
		b.plain("configmaps")(configmapstore.NewREST(options)),
		b.plain("secrets")(secretstore.NewREST(options)),
		b.plain("events")(eventstore.NewREST(options, uint64(b.config.EventTTL.Seconds()))),
		b.plain("limitranges")(limitrangestore.NewREST(options)),
		b.plain("podtemplates")(podtemplatestore.NewREST(options)),
		b.withStatus("resourcequotas")(resourcequotastore.NewREST(options)),
		b.withStatus("persistentvolumes")(pvstore.NewREST(options)),
		b.withStatus("persistentvolumeclaims")(pvcstore.NewREST(options)),
	)
}

// plain returns a function that adds a resource without subresources.
func (b *coreStorages) plain(resource string) func(rest.Storage, error) error {
	return func(storage rest.Storage, err error) error {
		b.storages[resource] = storage
		return err
	}
}

// withStatus returns a function that adds a resource whose only subresource is status.
func (b *coreStorages) withStatus(resource string) func(storage, status rest.Storage, err error) error {
	return func(storage, status rest.Storage, err error) error {
		b.storages[resource], b.storages[resource+"/status"] = storage, status
		return err
	}
}

// addNamespaces adds namespaces, with the subresource that confirms the removal of their content.
func (b *coreStorages) addNamespaces() error {
	namespaces, status, finalize, err := namespacestore.NewREST(b.config.RESTOptions)
	if err != nil {
		return err
	}
	b.storages["namespaces"] = namespaces
	b.storages["namespaces/status"] = status
	b.storages["namespaces/finalize"] = finalize
	return nil
}

// addReplicationControllers adds replicationcontrollers, whose scale is a kind of the autoscaling group.
func (b *coreStorages) addReplicationControllers() error {
	controllers, err := controllerstore.NewStorage(b.config.RESTOptions)
	if err != nil {
		return err
	}
	b.storages["replicationcontrollers"] = controllers.Controller
	b.storages["replicationcontrollers/status"] = controllers.Status
	b.storages["replicationcontrollers/scale"] = controllers.Scale
	return nil
}

// addWorkloads adds resources that need each other: pods reach their kubelet through nodes, Services read pods and EndpointSlices, and
// tokens are bound to pods, secrets, nodes and webhooks.
func (b *coreStorages) addWorkloads(allocators *serviceAllocators) error {
	c := b.config
	nodes, err := nodestore.NewStorage(c.RESTOptions, c.Kubelet, c.ProxyTransport)
	if err != nil {
		return err
	}
	pods, err := podstore.NewStorage(c.RESTOptions, nodes.KubeletConnectionInfo, c.ProxyTransport, b.client.PolicyV1(), c.Authorizer)
	if err != nil {
		return err
	}
	endpoints, err := endpointsstore.NewREST(c.RESTOptions)
	if err != nil {
		return err
	}
	services, statuses, serviceProxy, err := servicestore.NewREST(c.RESTOptions, allocators.primary.IPFamily(),
		allocators.byFamily, allocators.nodePorts, endpointSlices{b.client.DiscoveryV1()}, pods.Pod, c.ProxyTransport)
	if err != nil {
		return err
	}

	b.storages["nodes"] = nodes.Node
	b.storages["nodes/status"] = nodes.Status
	b.storages["nodes/proxy"] = nodes.Proxy
	b.storages["endpoints"] = endpoints
	allocateInTransactions(services.Store, b.client.NetworkingV1())
	b.storages["services"] = services
	b.storages["services/status"] = serviceStatus{statuses}
	b.storages["services/proxy"] = serviceProxy
	b.addPods(pods)
	return b.addServiceAccounts(pods, nodes)
}

// endpointSlices finds the EndpointSlices of a Service whose proxy is used. Upstream keeps all of the cluster in memory for this; a
// request at each use costs nothing while there is none.
type endpointSlices struct {
	client discoveryclient.DiscoveryV1Interface
}

// GetEndpointSlices implements proxy.EndpointSliceGetter.
func (e endpointSlices) GetEndpointSlices(namespace, service string) ([]*discoveryv1.EndpointSlice, error) {
	list, err := e.client.EndpointSlices(namespace).List(context.Background(), metav1.ListOptions{
		LabelSelector: labels.Set{discoveryv1.LabelServiceName: service}.String(),
	})
	if err != nil {
		return nil, err
	}
	slices := make([]*discoveryv1.EndpointSlice, len(list.Items))
	for i := range list.Items {
		slices[i] = &list.Items[i]
	}
	return slices, nil
}

// addPods adds pods and their subresources.
func (b *coreStorages) addPods(pods podstore.PodStorage) {
	b.storages["pods"] = pods.Pod
	b.storages["pods/status"] = pods.Status
	b.storages["pods/ephemeralcontainers"] = pods.EphemeralContainers
	if utilfeature.DefaultFeatureGate.Enabled(features.InPlacePodVerticalScaling) {
		b.storages["pods/resize"] = pods.Resize
	}
	b.storages["pods/binding"] = pods.Binding
	b.storages["bindings"] = pods.LegacyBinding
	if pods.Eviction != nil {
		b.storages["pods/eviction"] = pods.Eviction
	}
	// The pod's kubelet serves these.
	b.storages["pods/log"] = pods.Log
	b.storages["pods/attach"] = pods.Attach
	b.storages["pods/exec"] = pods.Exec
	b.storages["pods/portforward"] = pods.PortForward
	b.storages["pods/proxy"] = pods.Proxy
}

// addServiceAccounts adds serviceaccounts, and the token subresource if there is an issuer.
func (b *coreStorages) addServiceAccounts(pods podstore.PodStorage, nodes *nodestore.NodeStorage) error {
	c := b.config.ServiceAccounts
	var nodeGetter rest.Getter
	if utilfeature.DefaultFeatureGate.Enabled(features.ServiceAccountTokenNodeBinding) ||
		utilfeature.DefaultFeatureGate.Enabled(features.ServiceAccountTokenPodNodeInfo) {
		nodeGetter = nodes.Node.Store
	}
	hooks := b.client.AdmissionregistrationV1()
	accounts, err := serviceaccountstore.NewREST(b.config.RESTOptions, c.Issuer, c.Audiences, b.config.Authorizer, c.MaxExpiration,
		pods.Pod.Store, b.storages["secrets"].(rest.Getter), nodeGetter,
		hooks.ValidatingWebhookConfigurations(), hooks.MutatingWebhookConfigurations(), c.ExtendExpiration, c.MaxExtendedDuration)
	if err != nil {
		return err
	}
	b.storages["serviceaccounts"] = accounts
	if accounts.Token != nil {
		b.storages["serviceaccounts/token"] = accounts.Token
	}
	return nil
}

// inServer is a component that runs in the server, which would end if the component failed. It may also run in another server, or
// stand back for a separate program.
type inServer struct{}

// DoServerCheck implements componentstatus.Server.
func (inServer) DoServerCheck() (probe.Result, string, error) { return probe.Success, "ok", nil }

// The default ports of kube-controller-manager and kube-scheduler.
const (
	managerPort   = 10257
	schedulerPort = 10259
)

// componentServers lists the components that componentstatuses probes, which otherwise usually run next to the API server. The
// datastore is not included: /readyz reports its state.
func componentServers(c Config) map[string]componentstatus.Server {
	local := func(inside bool, port int) componentstatus.Server {
		if inside {
			return inServer{}
		}
		return &componentstatus.HttpServer{
			EnableHTTPS: true,
			TLSConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a probe of this host, which sends no secret
			Addr:        "127.0.0.1",
			Port:        port,
			Path:        "/healthz",
		}
	}
	return map[string]componentstatus.Server{
		"controller-manager": local(c.ControllerManager, managerPort),
		"scheduler":          local(c.Scheduler, schedulerPort),
	}
}
