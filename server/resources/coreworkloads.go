package resources

import (
	"crypto/tls"

	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/cluster/ports"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/registry/core/componentstatus"
	endpointsstore "k8s.io/kubernetes/pkg/registry/core/endpoint/storage"
	nodestore "k8s.io/kubernetes/pkg/registry/core/node/storage"
	podstore "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	servicestore "k8s.io/kubernetes/pkg/registry/core/service/storage"
	serviceaccountstore "k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage"
	kubeschedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// addWorkloads adds resources that need each other: pods reach their kubelet through nodes, Services read pods and endpoints, and
// tokens are bound to pods, secrets and nodes.
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
	services, serviceStatus, serviceProxy, err := servicestore.NewREST(c.RESTOptions, allocators.primary.IPFamily(),
		allocators.byFamily, allocators.nodePorts, endpoints, pods.Pod, c.ProxyTransport)
	if err != nil {
		return err
	}

	b.storages["nodes"] = nodes.Node
	b.storages["nodes/status"] = nodes.Status
	b.storages["nodes/proxy"] = nodes.Proxy
	b.storages["endpoints"] = endpoints
	b.storages["services"] = services
	b.storages["services/status"] = serviceStatus
	b.storages["services/proxy"] = serviceProxy
	b.addPods(pods)
	return b.addServiceAccounts(pods, nodes)
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
	accounts, err := serviceaccountstore.NewREST(b.config.RESTOptions, c.Issuer, c.Audiences, c.MaxExpiration,
		pods.Pod.Store, b.storages["secrets"].(rest.Getter), nodeGetter, c.ExtendExpiration, c.MaxExtendedDuration)
	if err != nil {
		return err
	}
	b.storages["serviceaccounts"] = accounts
	if accounts.Token != nil {
		b.storages["serviceaccounts/token"] = accounts.Token
	}
	return nil
}

// componentServers lists what componentstatuses probes: the components that usually run beside the API server. The datastore is not
// included: /readyz reports its state.
func componentServers() map[string]componentstatus.Server {
	local := func(port int) componentstatus.Server {
		return &componentstatus.HttpServer{
			EnableHTTPS: true,
			TLSConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // a probe of this host, which sends no secret
			Addr:        "127.0.0.1",
			Port:        port,
			Path:        "/healthz",
		}
	}
	return map[string]componentstatus.Server{
		"controller-manager": local(ports.KubeControllerManagerPort),
		"scheduler":          local(kubeschedulerconfig.DefaultKubeSchedulerPort),
	}
}
