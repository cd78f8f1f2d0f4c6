package crd

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"

	"github.com/sqube/sqube/server/decorate"
	"github.com/sqube/sqube/server/resources"
)

// NewGroup builds apiextensions.k8s.io. Definitions are stored as v1. (kube-apiserver still writes the shorter v1beta1, because
// of etcd's limit of 1.5 MB. Rows have no such limit.)
func NewGroup(storage generic.StorageDecorator) (*genericapiserver.APIGroupInfo, error) {
	definitions, err := customresourcedefinition.NewREST(apiserver.Scheme, definitionOptions(storage))
	if err != nil {
		return nil, fmt.Errorf("build the storage of customresourcedefinitions: %w", err)
	}
	definitions.CreateStrategy, definitions.UpdateStrategy = createUnreserved{definitions.CreateStrategy}, updateUnreserved{definitions.UpdateStrategy}
	group := genericapiserver.NewDefaultAPIGroupInfo(
		apiextensions.GroupName, apiserver.Scheme, metav1.ParameterCodec, apiserver.Codecs)
	group.VersionedResourcesStorageMap[apiextensionsv1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"customresourcedefinitions":        definitions,
		"customresourcedefinitions/status": customresourcedefinition.NewStatusREST(apiserver.Scheme, definitions),
	}
	return &group, nil
}

func definitionOptions(storage generic.StorageDecorator) resources.CodecRESTOptions {
	return resources.CodecRESTOptions{
		Codec:     apiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion),
		Versioner: apiextensionsv1.SchemeGroupVersion,
		Decorator: storage,
	}
}

// customResourceOptions stores custom resources as JSON. For each definition, upstream's handler wraps this codec in conversion
// to the storage version, pruning and defaulting.
func customResourceOptions(storage generic.StorageDecorator) resources.CodecRESTOptions {
	return resources.CodecRESTOptions{
		Codec:     runtime.NewCodec(unstructured.UnstructuredJSONScheme, unstructured.UnstructuredJSONScheme),
		Decorator: separateFromBuiltIn(storage),
	}
}

// NewStorage makes the storage of a definition's custom resources for objects that are already in their stored version: it does
// not convert, prune or default them. Selectors can name the selectable fields of the object's version.
func NewStorage(d *apiextensionsv1.CustomResourceDefinition, decorate generic.StorageDecorator) (storage.Interface, error) {
	resource := schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}
	options, err := customResourceOptions(decorate).GetRESTOptions(resource, nil)
	if err != nil {
		return nil, err
	}
	attributes := map[string]storage.AttrFunc{}
	for _, version := range d.Spec.Versions {
		kind := schema.GroupVersionKind{Group: d.Spec.Group, Version: version.Name, Kind: d.Spec.Names.Kind}
		namespaced := d.Spec.Scope == apiextensionsv1.NamespaceScoped
		attributes[kind.GroupVersion().String()] = customresource.NewStrategy(nil, namespaced, kind, nil, nil, nil, nil, nil, version.SelectableFields).GetAttrs
	}
	made, _, err := options.Decorator(options.StorageConfig, options.ResourcePrefix, nil,
		func() runtime.Object { return &unstructured.Unstructured{} },
		func() runtime.Object { return &unstructured.UnstructuredList{} },
		func(obj runtime.Object) (labels.Set, fields.Set, error) {
			version := obj.GetObjectKind().GroupVersionKind().GroupVersion().String()
			attribute, ok := attributes[version]
			if !ok {
				return nil, nil, fmt.Errorf("it is stored as %s, which its CustomResourceDefinition does not have", version)
			}
			return attribute(obj)
		}, nil, nil)
	return made, err
}

// closeWatchesOnDestroy makes the watches of a storage end when it is destroyed. Otherwise they would continue with the old
// schema and conversion of a custom resource, or wait for events that can't come. Clients then watch again and get the new
// schema, or an error that the resource is gone.
//
// In kube-apiserver the watch cache ends the watches: upstream's handler destroys the storages of an old definition a few
// seconds after a change.
func closeWatchesOnDestroy(next generic.StorageDecorator) generic.StorageDecorator {
	return decorate.Storage(next, func(_ schema.GroupResource, s storage.Interface, destroy factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error) {
		open, closeWatches := context.WithCancel(context.Background())
		return watchCloser{s, open}, func() {
			closeWatches()
			destroy()
		}, nil
	})
}

// watchCloser is a storage whose watches end when open does.
type watchCloser struct {
	storage.Interface
	open context.Context
}

// Unwrap returns the storage itself.
func (c watchCloser) Unwrap() storage.Interface { return c.Interface }

func (c watchCloser) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.open, cancel)
	context.AfterFunc(ctx, func() { stop() })
	w, err := c.Interface.Watch(ctx, key, opts)
	if err != nil {
		cancel()
	}
	return w, err
}
