// Package builtin knows all built-in resources without a server: their storages and their names.
package builtin

import (
	"context"
	"net"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/decorate"
	"github.com/sqube/sqube/server/loopback"
	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// Resources are the built-in resources, whether they are served by default or not.
type Resources struct {
	// Options has the paths under which kube-apiserver stores objects.
	Options *resources.RESTOptions
	// Storages are those of the resources that are stored. They have no store.
	Storages   map[schema.GroupResource]*apistorage.Storage
	versioners map[schema.GroupResource]runtime.GroupVersioner
	groups     []*genericapiserver.APIGroupInfo
}

// New builds the storages like a server, with a decorator of storages that are made without a store.
func New(decorator func(generic.StorageDecorator) generic.StorageDecorator) (*Resources, error) {
	r := &Resources{Storages: map[schema.GroupResource]*apistorage.Storage{}, versioners: map[schema.GroupResource]runtime.GroupVersioner{}}
	collected := r.collect(decorator(apistorage.Decorator(nil, resources.Kinds)))
	versions, err := resources.ParseRuntimeConfig(map[string]string{"api/all": "true"})
	if err != nil {
		return nil, err
	}
	if r.Options, err = resources.NewRESTOptions(versions, collected); err != nil {
		return nil, err
	}
	// No requests are sent over the loopback.
	unused := loopback.New(context.Background()).Config()
	client, err := kubernetes.NewForConfig(unused)
	if err != nil {
		return nil, err
	}
	built, err := resources.New(resources.Config{
		RESTOptions: r.Options, Versions: versions, Loopback: unused, Informers: informers.NewSharedInformerFactory(client, 0),
		Services: resources.Services{
			IPRange: net.IPNet{IP: net.IPv4(10, 0, 0, 0), Mask: net.CIDRMask(24, 32)}, NodePorts: kubeoptions.DefaultServiceNodePortRange,
		},
		Authorizer: authorizerfactory.NewAlwaysDenyAuthorizer(),
	})
	if err != nil {
		return nil, err
	}
	definitions, err := crd.NewGroup(collected)
	if err != nil {
		return nil, err
	}
	for _, group := range built.Groups {
		info, err := group.Info()
		if err != nil {
			return nil, err
		}
		r.groups = append(r.groups, info)
	}
	built.Destroy()
	r.groups = append(r.groups, definitions)
	return r, nil
}

// collect returns a decorator that makes storages with next and records each of them, with its version.
func (r *Resources) collect(next generic.StorageDecorator) generic.StorageDecorator {
	next = decorate.Config(next, func(c *storagebackend.ConfigForResource) { r.versioners[c.GroupResource] = c.EncodeVersioner })
	return decorate.Storage(next, func(resource schema.GroupResource, made storage.Interface, destroy factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error) {
		if s, ok := made.(*apistorage.Storage); ok {
			r.Storages[resource] = s
		}
		return made, destroy, nil
	})
}

// StorageVersion returns the version in which a server with the default flags stores objects of the kind, which is one of the
// resource in any version. It returns false for a resource or kind that is not built in.
func (r *Resources) StorageVersion(resource schema.GroupResource, kind schema.GroupVersionKind) (schema.GroupVersion, bool) {
	versioner := r.versioners[resource]
	if versioner == nil {
		return schema.GroupVersion{}, false
	}
	stored, ok := versioner.KindForGroupVersionKinds([]schema.GroupVersionKind{kind})
	return stored.GroupVersion(), ok
}

// Names are those by which people call a resource, and where it is stored.
type Names struct {
	Group, Plural, Singular string
	ShortNames              []string
	Stored                  schema.GroupResource
}

// Names returns the names of the resources that are stored, in the order in which kubectl looks them up.
func (r *Resources) Names() []Names {
	var all []Names
	seen := map[schema.GroupResource]bool{}
	for _, group := range r.groups {
		for _, version := range group.PrioritizedVersions {
			for plural, served := range group.VersionedResourcesStorageMap[version.Version] {
				resource := schema.GroupResource{Group: version.Group, Resource: plural}
				named, ok := served.(rest.SingularNameProvider)
				if !ok || strings.Contains(plural, "/") || seen[resource] {
					continue
				}
				seen[resource] = true
				n := Names{Group: version.Group, Plural: plural, Singular: named.GetSingularName(), Stored: resource}
				if short, ok := served.(rest.ShortNamesProvider); ok {
					n.ShortNames = short.ShortNames()
				}
				if r.Storages[n.Stored] == nil {
					n.Stored.Group = "" // events are stored once for both of their groups
				}
				if r.Storages[n.Stored] != nil {
					all = append(all, n)
				}
			}
		}
	}
	return all
}
