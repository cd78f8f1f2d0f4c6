package crd

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/sqube/sqube/server/resources"
)

// NewGroup builds apiextensions.k8s.io. Definitions are stored as v1. (kube-apiserver still writes v1beta1, for the sake
// of definitions near etcd's limit of 1.5 MB. Rows have no such limit.)
func NewGroup(storage generic.StorageDecorator) (*genericapiserver.APIGroupInfo, error) {
	options := resources.CodecRESTOptions{
		Codec:     apiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion),
		Versioner: apiextensionsv1.SchemeGroupVersion,
		Decorator: storage,
	}
	definitions, err := customresourcedefinition.NewREST(apiserver.Scheme, options)
	if err != nil {
		return nil, fmt.Errorf("build the storage of customresourcedefinitions: %w", err)
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(
		apiextensions.GroupName, apiserver.Scheme, metav1.ParameterCodec, apiserver.Codecs)
	group.VersionedResourcesStorageMap[apiextensionsv1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"customresourcedefinitions":        definitions,
		"customresourcedefinitions/status": customresourcedefinition.NewStatusREST(apiserver.Scheme, definitions),
	}
	return &group, nil
}

// customResourceOptions stores custom resources as JSON. For each definition, upstream's handler wraps this codec in conversion
// to the storage version, pruning and defaulting.
func customResourceOptions(storage generic.StorageDecorator) resources.CodecRESTOptions {
	return resources.CodecRESTOptions{
		Codec:     runtime.NewCodec(unstructured.UnstructuredJSONScheme, unstructured.UnstructuredJSONScheme),
		Decorator: separateFromBuiltIn(storage),
	}
}
