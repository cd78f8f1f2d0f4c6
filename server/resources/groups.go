package resources

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/kubernetes"
	basecompatibility "k8s.io/component-base/compatibility"
	apiservice "k8s.io/kube-aggregator/pkg/registry/apiservice/rest"
	admissionregistration "k8s.io/kubernetes/pkg/registry/admissionregistration/rest"
	apiserverinternal "k8s.io/kubernetes/pkg/registry/apiserverinternal/rest"
	apps "k8s.io/kubernetes/pkg/registry/apps/rest"
	authentication "k8s.io/kubernetes/pkg/registry/authentication/rest"
	authorization "k8s.io/kubernetes/pkg/registry/authorization/rest"
	autoscaling "k8s.io/kubernetes/pkg/registry/autoscaling/rest"
	batch "k8s.io/kubernetes/pkg/registry/batch/rest"
	certificates "k8s.io/kubernetes/pkg/registry/certificates/rest"
	coordination "k8s.io/kubernetes/pkg/registry/coordination/rest"
	discovery "k8s.io/kubernetes/pkg/registry/discovery/rest"
	events "k8s.io/kubernetes/pkg/registry/events/rest"
	flowcontrol "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
	lifecycle "k8s.io/kubernetes/pkg/registry/lifecycle/rest"
	networking "k8s.io/kubernetes/pkg/registry/networking/rest"
	node "k8s.io/kubernetes/pkg/registry/node/rest"
	policy "k8s.io/kubernetes/pkg/registry/policy/rest"
	rbac "k8s.io/kubernetes/pkg/registry/rbac/rest"
	resource "k8s.io/kubernetes/pkg/registry/resource/rest"
	scheduling "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	storage "k8s.io/kubernetes/pkg/registry/storage/rest"
	storagemigration "k8s.io/kubernetes/pkg/registry/storagemigration/rest"
)

// Built is the result of New.
type Built struct {
	Groups     []*genericapiserver.APIGroupInfo   // core first, then in kube-apiserver's order
	Equivalent runtime.EquivalentResourceRegistry // of resources that are stored in the same place
	Repair     *ServiceRepair                     // must run while the server does
}

// Has reports whether there is a storage of a resource.
func (b *Built) Has(resource schema.GroupVersionResource) bool { return b.Storage(resource) != nil }

// Storage returns the storage of a resource, nil if there is none.
func (b *Built) Storage(resource schema.GroupVersionResource) rest.Storage {
	for _, group := range b.Groups {
		if storage, found := group.VersionedResourcesStorageMap[resource.Version][resource.Resource]; found && group.PrioritizedVersions[0].Group == resource.Group {
			return storage
		}
	}
	return nil
}

// Destroy stops the background work of the storages. They must not be used afterwards.
func (b *Built) Destroy() {
	for _, group := range b.Groups {
		for _, storages := range group.VersionedResourcesStorageMap {
			for _, storage := range storages {
				storage.Destroy()
			}
		}
	}
}

// New builds the storages of every built-in group that is enabled. Groups without an enabled resource are omitted. It sends no
// requests.
func New(c Config) (*Built, error) {
	client, err := kubernetes.NewForConfig(c.Loopback)
	if err != nil {
		return nil, fmt.Errorf("making the loopback client: %w", err)
	}
	allocators, err := newServiceAllocators(c, client)
	if err != nil {
		return nil, err
	}
	coreGroup, err := newCoreGroup(c, client, allocators)
	if err != nil {
		return nil, err
	}
	// Kinds that are too old or too new for the emulated version are not served, even if they are enabled.
	expiration, err := genericapiserver.NewResourceExpirationEvaluatorFromOptions(genericapiserver.ResourceExpirationEvaluatorOptions{
		CurrentVersion:                          compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).EmulationVersion(),
		EmulationForwardCompatible:              c.NewerVersions,
		RuntimeConfigEmulationForwardCompatible: c.NewerConfigured,
	})
	if err != nil {
		return nil, fmt.Errorf("reading the server's version: %w", err)
	}

	groups := []*genericapiserver.APIGroupInfo{coreGroup}
	for _, provider := range providers(c, client) {
		group, err := provider.NewRESTStorage(c.Versions, c.RESTOptions)
		if err != nil {
			return nil, fmt.Errorf("building the group %s: %w", provider.GroupName(), err)
		}
		groups = append(groups, &group)
	}
	apiServices := apiservice.NewRESTStorage(c.Versions, c.RESTOptions, false)
	groups = append(groups, &apiServices)

	built := &Built{Equivalent: equivalentResources(c.RESTOptions), Repair: newServiceRepair(c.Services, cmp.Or(c.Repair, repairInterval), client, c.Informers, allocators)}
	for _, group := range groups {
		name := group.PrioritizedVersions[0].Group
		if err := expiration.RemoveUnavailableKinds(name, group.Scheme, group.VersionedResourcesStorageMap, c.Versions); err != nil {
			return nil, fmt.Errorf("choosing the served kinds of the group %q: %w", name, err)
		}
		if len(group.VersionedResourcesStorageMap) > 0 {
			built.Groups = append(built.Groups, group)
		}
	}
	return built, nil
}

// provider makes the storages of one group. Every group's package under k8s.io/kubernetes/pkg/registry has one.
type provider interface {
	GroupName() string
	NewRESTStorage(serverstorage.APIResourceConfigSource, generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error)
}

// providers lists the groups besides core, in kube-apiserver's order (StorageProviders in pkg/controlplane).
func providers(c Config, client *kubernetes.Clientset) []provider {
	return []provider{
		apiserverinternal.StorageProvider{},
		authentication.RESTStorageProvider{Authenticator: c.Authenticator, APIAudiences: c.ServiceAccounts.Audiences},
		authorization.RESTStorageProvider{Authorizer: c.Authorizer, RuleResolver: c.RuleResolver},
		autoscaling.RESTStorageProvider{},
		batch.RESTStorageProvider{},
		certificates.RESTStorageProvider{Authorizer: c.Authorizer},
		coordination.RESTStorageProvider{},
		discovery.StorageProvider{},
		lifecycle.RESTStorageProvider{},
		networking.RESTStorageProvider{},
		node.RESTStorageProvider{},
		policy.RESTStorageProvider{},
		rbac.RESTStorageProvider{Authorizer: c.Authorizer},
		scheduling.RESTStorageProvider{},
		storage.RESTStorageProvider{},
		storagemigration.RESTStorageProvider{},
		flowcontrol.RESTStorageProvider{InformerFactory: c.Informers},
		apps.StorageProvider{},
		admissionregistration.RESTStorageProvider{Authorizer: c.Authorizer, DiscoveryClient: client.Discovery()},
		events.RESTStorageProvider{TTL: c.EventTTL},
		resource.RESTStorageProvider{NamespaceClient: client.CoreV1().Namespaces(), Authorizer: c.Authorizer},
	}
}
