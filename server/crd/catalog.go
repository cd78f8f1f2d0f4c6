package crd

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/sqube/sqube/server/decorate"
)

// definition is a CustomResourceDefinition. Those from a catalog are shared and must not be changed.
type definition = *apiextensionsv1.CustomResourceDefinition

// catalog finds the established definitions: those that are accepted and served.
type catalog struct {
	indexer cache.Indexer
}

const groupIndex = "group"

// newCatalog adds an index to the informer, which must not have been started.
func newCatalog(informer cache.SharedIndexInformer) (catalog, error) {
	err := informer.AddIndexers(cache.Indexers{groupIndex: func(o any) ([]string, error) {
		return []string{o.(definition).Spec.Group}, nil
	}})
	if err != nil {
		return catalog{}, fmt.Errorf("index custom resource definitions by group: %w", err)
	}
	return catalog{informer.GetIndexer()}, nil
}

// serving lists the established definitions that serve a group version, by name.
func (c catalog) serving(gv schema.GroupVersion) []definition {
	inGroup, _ := c.indexer.ByIndex(groupIndex, gv.Group) // the only possible error is a missing index
	return slices.DeleteFunc(established(inGroup), func(d definition) bool { return !apihelpers.HasServedCRDVersion(d, gv.Version) })
}

// established returns those of the definitions that are established and may be served, by name.
func established(definitions []any) []definition {
	var found []definition
	for _, o := range definitions {
		if d := o.(definition); !reserved(d.Spec.Group) && apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b definition) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// customPrefix is the prefix, in rows, of the resource name of custom resources that have the same name as a built-in resource.
const customPrefix = "custom:"

// builtInResources are all resources of Kubernetes, whether served or not.
var builtInResources = sync.OnceValue(func() map[schema.GroupResource]bool {
	resources := map[schema.GroupResource]bool{}
	for _, s := range []*runtime.Scheme{legacyscheme.Scheme, apiserver.Scheme, scheme.Scheme} {
		for kind := range s.AllKnownTypes() {
			plural, _ := meta.UnsafeGuessKindToResource(kind)
			resources[plural.GroupResource()] = true
		}
	}
	return resources
})

// BuiltIn reports whether Kubernetes has a resource of this name.
func BuiltIn(resource schema.GroupResource) bool { return builtInResources()[resource] }

// separateFromBuiltIn stores custom resources that have the same name as a built-in resource under another name. Any user who
// can create definitions can create leases.coordination.k8s.io, and deleting that definition deletes all its objects.
func separateFromBuiltIn(next generic.StorageDecorator) generic.StorageDecorator {
	return decorate.Config(next, func(c *storagebackend.ConfigForResource) {
		c.GroupResource = Stored(c.GroupResource)
	})
}

// Stored returns the name under which the objects of a custom resource are in rows.
func Stored(custom schema.GroupResource) schema.GroupResource {
	if BuiltIn(custom) {
		custom.Resource = customPrefix + custom.Resource
	}
	return custom
}

// HasPlainStatus reports whether the status of custom resources in a version is a field like others, since they have no subresource for it.
func HasPlainStatus(d *apiextensionsv1.CustomResourceDefinition, version string) bool {
	on, err := apihelpers.GetSubresourcesForVersion(d, version)
	return err != nil || on == nil || on.Status == nil // an error means that there is no such version
}

// Definition returns the name of the definition of a resource, which it has in rows. It returns false for the resources of Kubernetes.
func Definition(stored schema.GroupResource) (name string, custom bool) {
	plural, separate := strings.CutPrefix(stored.Resource, customPrefix)
	return plural + "." + stored.Group, separate || !BuiltIn(stored)
}
