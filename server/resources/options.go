package resources

import (
	"cmp"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	basecompatibility "k8s.io/component-base/compatibility"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/kubeapiserver"
)

// coreEvents is where events of both API groups are stored, since they are the same objects.
var coreEvents = schema.GroupResource{Resource: "events"}

// RESTOptions is how each built-in resource is stored: as JSON in upstream's storage version, under /GROUP/RESOURCE, through the
// given decorator.
type RESTOptions struct {
	factory   serverstorage.StorageFactory
	decorator generic.StorageDecorator
	// DeleteCollectionWorkers is how many objects of a collection are deleted at once; 0 means 1.
	DeleteCollectionWorkers int
}

// NewRESTOptions returns the storage options of the built-in groups. The decorator makes the storage.Interface of a resource; it is
// the only access to the database.
func NewRESTOptions(versions *serverstorage.ResourceConfig, decorator generic.StorageDecorator) (*RESTOptions, error) {
	config := kubeapiserver.NewStorageFactoryConfigEffectiveVersion(compatibility.DefaultComponentGlobalsRegistry.EffectiveVersionFor(basecompatibility.DefaultKubeComponent))
	config.APIResourceConfig = versions
	factory, err := config.Complete(&genericoptions.EtcdOptions{DefaultStorageMediaType: runtime.ContentTypeJSON}).New()
	if err != nil {
		return nil, fmt.Errorf("choosing storage versions: %w", err)
	}
	return &RESTOptions{factory: factory, decorator: decorator}, nil
}

// GetRESTOptions returns how the resource is stored. The example, if any, determines the storage version of a kind that is newer
// than the group's. It returns an error for a group that is not built in.
func (o *RESTOptions) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	if resource.Group == apiregistration.GroupName { // legacyscheme does not have it
		return CodecRESTOptions{
			Codec:     aggregatorscheme.Codecs.LegacyCodec(apiregistration.SchemeGroupVersion),
			Versioner: apiregistration.SchemeGroupVersion,
			Decorator: o.decorator, DeleteCollectionWorkers: o.DeleteCollectionWorkers,
		}.GetRESTOptions(resource, example)
	}
	config, err := o.factory.NewConfig(resource, example)
	if err != nil {
		return generic.RESTOptions{}, fmt.Errorf("choosing the storage version of %s: %w", resource, err)
	}
	stored := resource
	if resource.Resource == coreEvents.Resource && resource.Group == "events.k8s.io" {
		stored = coreEvents
	}
	config.GroupResource = stored
	return restOptions(config, o.decorator, o.DeleteCollectionWorkers), nil
}

// EtcdPath returns the path under which kube-apiserver stores the objects of a resource that is not custom: the part of its keys
// between --etcd-prefix and the namespace or name, without surrounding slashes.
func (o *RESTOptions) EtcdPath(resource schema.GroupResource) string {
	if resource.Group == apiextensions.GroupName || resource.Group == apiregistration.GroupName {
		return resource.Group + "/" + resource.Resource
	}
	return o.factory.ResourcePrefix(resource)
}

// CodecRESTOptions stores the resources of a group with its own scheme, with one codec for all of them.
type CodecRESTOptions struct {
	Codec     runtime.Codec            // to and from the stored form
	Versioner runtime.GroupVersioner   // the version Codec encodes to
	Decorator generic.StorageDecorator // makes the storage.Interface of a resource
	// DeleteCollectionWorkers is how many objects of a collection are deleted at once; 0 means 1.
	DeleteCollectionWorkers int
}

// GetRESTOptions returns how the resource is stored. It never fails.
func (o CodecRESTOptions) GetRESTOptions(resource schema.GroupResource, _ runtime.Object) (generic.RESTOptions, error) {
	config := storagebackend.Config{Codec: o.Codec, EncodeVersioner: o.Versioner}
	return restOptions(config.ForResource(resource), o.Decorator, o.DeleteCollectionWorkers), nil
}

// restOptions completes a storage configuration with the options that are the same for every resource.
func restOptions(config *storagebackend.ConfigForResource, decorator generic.StorageDecorator, workers int) generic.RESTOptions {
	return generic.RESTOptions{
		StorageConfig:           config,
		Decorator:               decorator,
		EnableGarbageCollection: true,
		DeleteCollectionWorkers: max(workers, 1),
		ResourcePrefix:          KeyPrefix(config.GroupResource),
	}
}

// KeyPrefix returns the prefix of the keys of a resource's objects, without a trailing slash. The legacy group's empty name is written
// "core", so that every key has the same number of parts.
func KeyPrefix(resource schema.GroupResource) string {
	return "/" + cmp.Or(resource.Group, "core") + "/" + resource.Resource
}
