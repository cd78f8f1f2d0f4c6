package handlers

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// Group is a group of a server. Its storages are made when they are first needed.
type Group struct {
	*Description
	info  func() (*genericapiserver.APIGroupInfo, error)
	built atomic.Bool
}

// NewGroup returns the group with a description whose storages build makes; it is called once.
func NewGroup(d *Description, build func() (*genericapiserver.APIGroupInfo, error)) *Group {
	g := &Group{Description: d}
	g.info = sync.OnceValues(func() (*genericapiserver.APIGroupInfo, error) {
		defer g.built.Store(true)
		return build()
	})
	return g
}

// GroupOf returns the group with storages that exist.
func GroupOf(info *genericapiserver.APIGroupInfo) (*Group, error) {
	d, err := Describe(info)
	if err != nil {
		return nil, err
	}
	return NewGroup(d, func() (*genericapiserver.APIGroupInfo, error) { return info, nil }), nil
}

// Info returns the group with its scheme, codecs and storages.
func (g *Group) Info() (*genericapiserver.APIGroupInfo, error) { return g.info() }

// Destroy stops the background work of the storages. They must not be used afterwards.
func (g *Group) Destroy() {
	if !g.built.Load() {
		return
	}
	info, err := g.info()
	if err != nil {
		return
	}
	for _, storages := range info.VersionedResourcesStorageMap {
		for _, storage := range storages {
			storage.Destroy()
		}
	}
}

// Description is what is known of a group without its storages. It does not change, and servers share it.
type Description struct {
	Name     string
	Versions []*VersionDescription // those with resources, the preferred one first
}

// VersionDescription describes a version of a group.
type VersionDescription struct {
	schema.GroupVersion
	// Resources are the resources and subresources by their paths: RESOURCE or RESOURCE/SUBRESOURCE.
	Resources map[string]ResourceDescription

	listed     []metav1.APIResource
	aggregated apidiscovery.APIVersionDiscovery
}

// ResourceDescription describes a resource or a subresource.
type ResourceDescription struct {
	Kind       schema.GroupVersionKind // of requests and answers
	Object     string                  // the kind of the storage's objects; "" if these have none
	Namespaced bool                    // for a subresource, whether its resource is
	Gets       bool                    // whether one object can be read

	within bool // see CreaterInNamespaces
}

// Version returns the description of a version, nil for one without resources.
func (d *Description) Version(name string) *VersionDescription {
	for _, v := range d.Versions {
		if v.Version == name {
			return v
		}
	}
	return nil
}

// Register registers the kinds of the group.
func (d *Description) Register(registry runtime.EquivalentResourceRegistry) {
	for _, version := range d.Versions {
		for path, described := range version.Resources {
			resource, subresource, _ := strings.Cut(path, "/")
			registry.RegisterKindFor(version.WithResource(resource), subresource, described.Kind)
		}
	}
}

// Describe describes the group with the storages. It returns an error if a storage can't be served, which is a bug.
func Describe(group *genericapiserver.APIGroupInfo) (*Description, error) {
	d := &Description{Name: group.PrioritizedVersions[0].Group}
	for _, version := range group.PrioritizedVersions {
		storages := group.VersionedResourcesStorageMap[version.Version]
		if len(storages) == 0 {
			continue
		}
		v, err := describeVersion(group, version, storages)
		if err != nil {
			return nil, err
		}
		d.Versions = append(d.Versions, v)
	}
	return d, nil
}

// describeVersion describes the resources of a version, in the order of their names.
func describeVersion(group *genericapiserver.APIGroupInfo, version schema.GroupVersion, storages map[string]rest.Storage) (*VersionDescription, error) {
	v := &VersionDescription{GroupVersion: version, Resources: map[string]ResourceDescription{}}
	for _, path := range slices.Sorted(maps.Keys(storages)) {
		t, err := newTarget(group, version, path, storages)
		if err != nil {
			return nil, err
		}
		kind, err := genericapi.GetResourceKind(version, t.storage, group.Scheme)
		if err != nil {
			return nil, t.bug(err)
		}
		resource, err := describe(t, kind)
		if err != nil {
			return nil, t.bug(err)
		}
		v.listed = append(v.listed, resource)
		_, gets := t.storage.(rest.Getter)
		_, within := t.storage.(CreaterInNamespaces)
		described := ResourceDescription{Kind: kind, Namespaced: t.namespaced, Gets: gets, within: within}
		if kinds, _, err := group.Scheme.ObjectKinds(t.storage.New()); err == nil {
			described.Object = kinds[0].Kind
		}
		v.Resources[path] = described
	}
	resources, err := genericapi.ConvertGroupVersionIntoToDiscovery(v.listed)
	if err != nil {
		return nil, fmt.Errorf("describing %s: %w", version, err)
	}
	v.aggregated = apidiscovery.APIVersionDiscovery{Version: version.Version, Resources: resources, Freshness: apidiscovery.DiscoveryFreshnessCurrent}
	return v, nil
}

func newTarget(group *genericapiserver.APIGroupInfo, version schema.GroupVersion, path string, storages map[string]rest.Storage) (target, error) {
	resource, subresource, _ := strings.Cut(path, "/")
	parent, ok := storages[resource].(rest.Scoper)
	if !ok {
		return target{}, fmt.Errorf("the storage of %s of %s does not implement rest.Scoper", resource, version)
	}
	return target{
		group:       group,
		version:     version,
		resource:    resource,
		subresource: subresource,
		namespaced:  parent.NamespaceScoped(),
		storage:     storages[path],
	}, nil
}
