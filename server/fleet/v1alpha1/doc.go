// Package v1alpha1 has the API of clusters that a server hosts.
//
// +kubebuilder:object:generate=true
// +groupName=fleet.sqube.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the version of the API.
var GroupVersion = schema.GroupVersion{Group: "fleet.sqube.io", Version: "v1alpha1"}

// AddToScheme adds the kinds to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Cluster{}, &ClusterList{}, &ClusterPool{}, &ClusterPoolList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
