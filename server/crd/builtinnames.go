package crd

import (
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
)

// customPrefix begins the resource's name in rows of custom resources that have the name of a built-in one.
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

// BuiltIn says whether Kubernetes has a resource of the name.
func BuiltIn(resource schema.GroupResource) bool { return builtInResources()[resource] }

// separateFromBuiltIn keeps custom resources that have the name of a built-in one apart from that. Anyone who may create definitions can
// make one called leases.coordination.k8s.io, and its end is the end of all its objects.
func separateFromBuiltIn(next generic.StorageDecorator) generic.StorageDecorator {
	return func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error),
		newObject, newList func() runtime.Object, attributes storage.AttrFunc, triggers storage.IndexerFuncs, indexers *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		if BuiltIn(config.GroupResource) {
			own := *config
			own.GroupResource.Resource = customPrefix + own.GroupResource.Resource
			config = &own
		}
		return next(config, prefix, key, newObject, newList, attributes, triggers, indexers)
	}
}
