package crd

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
)

var (
	verbs            = metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	terminatingVerbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}
	subresourceVerbs = metav1.Verbs{"get", "patch", "update"}
)

// verbsOf returns the supported verbs. While a definition is being deleted, these are fewer.
func verbsOf(d definition) metav1.Verbs {
	if apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Terminating) {
		return terminatingVerbs
	}
	return verbs
}

// describe lists the resources and subresources of definitions in one of their versions.
func describe(definitions []definition, gv schema.GroupVersion) []metav1.APIResource {
	list := []metav1.APIResource{}
	for _, d := range definitions {
		names := d.Status.AcceptedNames
		resource := metav1.APIResource{
			Name:               names.Plural,
			SingularName:       names.Singular,
			Namespaced:         d.Spec.Scope == apiextensionsv1.NamespaceScoped,
			Group:              gv.Group,
			Version:            gv.Version,
			Kind:               names.Kind,
			Verbs:              verbsOf(d),
			ShortNames:         names.ShortNames,
			Categories:         names.Categories,
			StorageVersionHash: storageVersionHash(d),
		}
		list = append(list, resource)
		on, err := apihelpers.GetSubresourcesForVersion(d, gv.Version)
		if err != nil || on == nil { // an error means that there is no such version, and so no subresource
			continue
		}
		add := func(subresource string, kind schema.GroupVersionKind) {
			list = append(list, metav1.APIResource{
				Name: names.Plural + "/" + subresource, Namespaced: resource.Namespaced,
				Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Verbs: subresourceVerbs,
			})
		}
		if on.Status != nil {
			add("status", gv.WithKind(names.Kind))
		}
		if on.Scale != nil {
			add("scale", autoscalingv1.SchemeGroupVersion.WithKind("Scale"))
		}
	}
	return list
}

// describeLegacy is describe for discovery v1, where resources name the group and version of their kind only if these differ.
func describeLegacy(definitions []definition, gv schema.GroupVersion) []metav1.APIResource {
	list := describe(definitions, gv)
	for i := range list {
		if list[i].Group == gv.Group {
			list[i].Group, list[i].Version = "", ""
		}
	}
	return list
}

// storageVersionHash returns the hash that lets clients detect a change of the storage version (KEP-2342).
func storageVersionHash(d definition) string {
	storage, err := apihelpers.GetCRDStorageVersion(d)
	if err != nil || !apihelpers.HasServedCRDVersion(d, storage) { // upstream hashes served versions only
		return ""
	}
	return discovery.StorageVersionHash(d.Spec.Group, storage, d.Spec.Names.Kind)
}
