package resources

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
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

	"github.com/sqube/sqube/server/handlers"
)

// Built is the result of New.
type Built struct {
	Groups     []*handlers.Group                  // core first, then in kube-apiserver's order
	Equivalent runtime.EquivalentResourceRegistry // of resources that are stored in the same place
	Repair     *ServiceRepair                     // must run while the server does

	prefixes   map[schema.GroupResource]string
	allocators *serviceAllocators
}

// Stores reports whether the objects of a resource, which is served, are stored under its own name.
func (b *Built) Stores(resource schema.GroupVersionResource) bool {
	for _, group := range b.Groups {
		if version := group.Version(resource.Version); group.Name == resource.Group && version != nil {
			_, served := version.Resources[resource.Resource]
			name := resource.GroupResource()
			return served && b.prefixes[name] == KeyPrefix(name)
		}
	}
	return false
}

// Build makes the storages of all groups.
func (b *Built) Build() error {
	for _, group := range b.Groups {
		if _, err := group.Info(); err != nil {
			return err
		}
	}
	return nil
}

// Destroy stops the background work of the storages. They must not be used afterwards.
func (b *Built) Destroy() {
	for _, group := range b.Groups {
		group.Destroy()
	}
	b.allocators.destroy()
}

// New builds every built-in group that is enabled. Groups without an enabled resource are omitted. It sends no requests.
func New(c Config) (*Built, error) {
	client, err := kubernetes.NewForConfig(c.Loopback)
	if err != nil {
		return nil, fmt.Errorf("making the loopback client: %w", err)
	}
	allocators, err := newServiceAllocators(c, client)
	if err != nil {
		return nil, err
	}
	stored := &prefixes{RESTOptionsGetter: c.RESTOptions, known: map[schema.GroupResource]string{}}
	c.RESTOptions = stored
	builders, err := builders(c, client, allocators)
	if err != nil {
		return nil, err
	}
	built := &Built{allocators: allocators, Repair: newServiceRepair(c.Services, cmp.Or(c.Repair, repairInterval), client, c.Informers, allocators)}
	settings := c.settings()
	known, ok := catalogs.Load(settings)
	if ok {
		for i, description := range known.(*catalog).groups {
			if description != nil {
				built.Groups = append(built.Groups, handlers.NewGroup(description, builders[i]))
			}
		}
	} else {
		if built.Groups, known, err = newCatalog(stored, builders); err != nil {
			return nil, err
		}
		known, _ = catalogs.LoadOrStore(settings, known)
	}
	built.prefixes = known.(*catalog).prefixes
	built.Equivalent = equivalents{known.(*catalog).equivalent, runtime.NewEquivalentResourceRegistry()}
	return built, nil
}

// builders returns what makes each group.
func builders(c Config, client *kubernetes.Clientset, allocators *serviceAllocators) ([]builder, error) {
	// Kinds that are too old or too new for the emulated version are not served, even if they are enabled.
	expiration, err := genericapiserver.NewResourceExpirationEvaluatorFromOptions(genericapiserver.ResourceExpirationEvaluatorOptions{
		CurrentVersion:                          compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent).EmulationVersion(),
		EmulationForwardCompatible:              c.NewerVersions,
		RuntimeConfigEmulationForwardCompatible: c.NewerConfigured,
	})
	if err != nil {
		return nil, fmt.Errorf("reading the server's version: %w", err)
	}
	available := func(build builder) builder {
		return func() (*genericapiserver.APIGroupInfo, error) {
			group, err := build()
			if err != nil {
				return nil, err
			}
			name := group.PrioritizedVersions[0].Group
			if err := expiration.RemoveUnavailableKinds(name, group.Scheme, group.VersionedResourcesStorageMap, c.Versions); err != nil {
				return nil, fmt.Errorf("choosing the served kinds of the group %q: %w", name, err)
			}
			return group, nil
		}
	}
	all := []builder{available(func() (*genericapiserver.APIGroupInfo, error) {
		return newCoreGroup(c, client, allocators)
	})}
	for _, provider := range providers(c, client) {
		all = append(all, available(func() (*genericapiserver.APIGroupInfo, error) {
			group, err := provider.NewRESTStorage(c.Versions, c.RESTOptions)
			if err != nil {
				return nil, fmt.Errorf("building the group %s: %w", provider.GroupName(), err)
			}
			return &group, nil
		}))
	}
	return append(all, available(func() (*genericapiserver.APIGroupInfo, error) {
		group := apiservice.NewRESTStorage(c.Versions, c.RESTOptions, false)
		return &group, nil
	})), nil
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
