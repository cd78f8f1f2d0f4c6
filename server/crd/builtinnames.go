package crd

import (
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/sqube/sqube/server/decorate"
)

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
