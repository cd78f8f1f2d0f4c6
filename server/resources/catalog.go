package resources

import (
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	basecompatibility "k8s.io/component-base/compatibility"

	"github.com/sqube/sqube/server/handlers"
)

// catalog is what is known of the built-in groups without their storages. Making those takes longer than anything else at a start, so the
// first server of the process makes all of them, and a further one with the same settings only those that it is asked for.
type catalog struct {
	groups     []*handlers.Description
	prefixes   map[schema.GroupResource]string // of the keys of what is stored
	equivalent runtime.EquivalentResourceMapper
}

// catalogs has those of the process, by the settings on which they depend.
var catalogs sync.Map

// settings returns everything on which the catalog of a server depends.
func (c *Config) settings() string {
	version := compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent)
	return fmt.Sprint(version, utilfeature.DefaultMutableFeatureGate, *c.Versions, c.NewerVersions, c.NewerConfigured, c.ServiceAccounts.Issuer != nil)
}

// builder makes the storages of a group.
type builder func() (*genericapiserver.APIGroupInfo, error)

// newCatalog makes all groups. It returns those with resources and the catalog, in which others have no description.
func newCatalog(stored *prefixes, builders []builder) ([]*handlers.Group, any, error) {
	made := &catalog{}
	var groups []*handlers.Group
	for _, build := range builders {
		info, err := build()
		if err != nil {
			return nil, nil, err
		}
		group, err := handlers.GroupOf(info)
		if err != nil {
			return nil, nil, err
		}
		if len(group.Versions) == 0 {
			made.groups = append(made.groups, nil)
			continue
		}
		groups, made.groups = append(groups, group), append(made.groups, group.Description)
	}
	made.prefixes = maps.Clone(stored.known)
	made.equivalent = equivalentResources(made)
	return groups, made, nil
}

// equivalentResources returns a registry in which two resources are equivalent if they are stored in the same place, for admission
// webhooks with matchPolicy Equivalent.
func equivalentResources(c *catalog) runtime.EquivalentResourceMapper {
	registry := runtime.NewEquivalentResourceRegistryWithIdentity(func(resource schema.GroupResource) string { return c.prefixes[resource] })
	for _, group := range c.groups {
		if group != nil {
			group.Register(registry)
		}
	}
	return registry
}

// equivalents are those of the catalog and of other groups of a server.
type equivalents struct {
	runtime.EquivalentResourceMapper
	others runtime.EquivalentResourceRegistry
}

// EquivalentResourcesFor implements runtime.EquivalentResourceMapper.
func (e equivalents) EquivalentResourcesFor(resource schema.GroupVersionResource, subresource string) []schema.GroupVersionResource {
	if found := e.EquivalentResourceMapper.EquivalentResourcesFor(resource, subresource); found != nil {
		return found
	}
	return e.others.EquivalentResourcesFor(resource, subresource)
}

// KindFor implements runtime.EquivalentResourceMapper.
func (e equivalents) KindFor(resource schema.GroupVersionResource, subresource string) schema.GroupVersionKind {
	if found := e.EquivalentResourceMapper.KindFor(resource, subresource); !found.Empty() {
		return found
	}
	return e.others.KindFor(resource, subresource)
}

// RegisterKindFor implements runtime.EquivalentResourceRegistry.
func (e equivalents) RegisterKindFor(resource schema.GroupVersionResource, subresource string, kind schema.GroupVersionKind) {
	if e.EquivalentResourceMapper.KindFor(resource, subresource).Empty() {
		e.others.RegisterKindFor(resource, subresource, kind)
	}
}

// prefixes notes under which prefix each resource is stored.
type prefixes struct {
	generic.RESTOptionsGetter
	mu    sync.Mutex
	known map[schema.GroupResource]string
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (p *prefixes) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := p.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.known[resource] = options.ResourcePrefix
	}
	return options, err
}
