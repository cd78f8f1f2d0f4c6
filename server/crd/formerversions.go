package crd

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/sqube/sqube/server/decorate"
)

// readFormerVersions makes storages read objects that are stored in a version which their definition no longer has, as earlier states of
// an object can be. If the definition converts nothing but the apiVersion, so does this; otherwise the error names the version.
func readFormerVersions(next generic.StorageDecorator, definitions listers.CustomResourceDefinitionLister) generic.StorageDecorator {
	return decorate.Config(next, func(c *storagebackend.ConfigForResource) {
		c.Codec = formerCodec{c.Codec, c.GroupResource, definitions}
	})
}

type formerCodec struct {
	runtime.Codec
	resource    schema.GroupResource
	definitions listers.CustomResourceDefinitionLister
}

// Decode implements runtime.Decoder.
func (c formerCodec) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	decoded, kind, err := c.Codec.Decode(data, defaults, into)
	if err == nil {
		return decoded, kind, nil
	}
	stored := &unstructured.Unstructured{}
	if _, _, e := unstructured.UnstructuredJSONScheme.Decode(data, nil, stored); e != nil {
		return nil, nil, err
	}
	d, e := c.definitions.Get(c.resource.String())
	version := stored.GroupVersionKind().GroupVersion()
	if e != nil || slices.ContainsFunc(d.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version.Version }) {
		return nil, nil, err
	}
	if d.Spec.Conversion != nil && d.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		return nil, nil, fmt.Errorf("it is stored as %s, which its CustomResourceDefinition no longer has: add that version, which need not be served, to have it converted", version)
	}
	for _, v := range d.Spec.Versions {
		if v.Storage {
			stored.SetAPIVersion(schema.GroupVersion{Group: d.Spec.Group, Version: v.Name}.String())
		}
	}
	if data, err = stored.MarshalJSON(); err != nil {
		return nil, nil, err
	}
	return c.Codec.Decode(data, defaults, into)
}
