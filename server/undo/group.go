package undo

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

var version = schema.GroupVersion{Group: "history.sqube.io", Version: "v1alpha1"}

// Group returns the API group.
func Group(undos rest.Storage) *genericapiserver.APIGroupInfo {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(version, &Undo{})
	scheme.AddKnownTypes(schema.GroupVersion{Group: version.Group, Version: runtime.APIVersionInternal}, &Undo{})
	metav1.AddToGroupVersion(scheme, version)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	_ = scheme.SetVersionPriority(version)
	group := genericapiserver.NewDefaultAPIGroupInfo(version.Group, scheme, runtime.NewParameterCodec(scheme), serializer.NewCodecFactory(scheme))
	group.VersionedResourcesStorageMap[version.Version] = map[string]rest.Storage{"undos": undos}
	return &group
}
