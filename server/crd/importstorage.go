package crd

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
)

// NewStorage makes the storage of a definition's custom resources for objects that are already in their stored version: nothing
// is converted, pruned or defaulted. Selectors can name the selectable fields of the object's version.
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
