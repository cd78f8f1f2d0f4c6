package crd

import (
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
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

// subresource is a subresource of a definition in some version, with the kind of its objects.
type subresource struct {
	name string
	kind metav1.GroupVersionKind
}

// subresources lists the subresources of a definition in one of its versions.
func subresources(d definition, gv schema.GroupVersion) []subresource {
	on, err := apihelpers.GetSubresourcesForVersion(d, gv.Version)
	if err != nil || on == nil { // an error means that there is no such version, and so no subresource
		return nil
	}
	var list []subresource
	if on.Status != nil {
		list = append(list, subresource{"status", kind(d, gv)})
	}
	if on.Scale != nil {
		list = append(list, subresource{"scale", metav1.GroupVersionKind{Group: autoscalingv1.GroupName, Version: "v1", Kind: "Scale"}})
	}
	return list
}

func kind(d definition, gv schema.GroupVersion) metav1.GroupVersionKind {
	return metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: d.Status.AcceptedNames.Kind}
}

// verbsOf leaves out the verbs that are refused while a definition is being deleted.
func verbsOf(d definition) metav1.Verbs {
	if apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Terminating) {
		return terminatingVerbs
	}
	return verbs
}

// legacyResources describes definitions in one of their versions for discovery v1: subresources have their own entries, and name
// their kind's group and version only if these differ.
func legacyResources(definitions []definition, gv schema.GroupVersion) []metav1.APIResource {
	list := []metav1.APIResource{}
	for _, d := range definitions {
		names := d.Status.AcceptedNames
		namespaced := d.Spec.Scope == apiextensionsv1.NamespaceScoped
		list = append(list, metav1.APIResource{
			Name:               names.Plural,
			SingularName:       names.Singular,
			Namespaced:         namespaced,
			Kind:               names.Kind,
			Verbs:              verbsOf(d),
			ShortNames:         names.ShortNames,
			Categories:         names.Categories,
			StorageVersionHash: storageVersionHash(d),
		})
		for _, s := range subresources(d, gv) {
			entry := metav1.APIResource{
				Name: names.Plural + "/" + s.name, Namespaced: namespaced, Kind: s.kind.Kind, Verbs: subresourceVerbs,
			}
			if s.kind.Group != gv.Group {
				entry.Group, entry.Version = s.kind.Group, s.kind.Version
			}
			list = append(list, entry)
		}
	}
	return list
}

// storageVersionHash lets clients see, without knowing it, that the storage version changed (KEP-2330).
func storageVersionHash(d definition) string {
	storage, err := apihelpers.GetCRDStorageVersion(d)
	if err != nil || !apihelpers.HasServedCRDVersion(d, storage) { // upstream hashes served versions only
		return ""
	}
	return discovery.StorageVersionHash(d.Spec.Group, storage, d.Spec.Names.Kind)
}

// aggregatedResources describes definitions in one of their versions, for aggregated discovery (KEP-3352).
func aggregatedResources(definitions []definition, gv schema.GroupVersion) []apidiscoveryv2.APIResourceDiscovery {
	list := []apidiscoveryv2.APIResourceDiscovery{}
	for _, d := range definitions {
		names, readAs := d.Status.AcceptedNames, kind(d, gv)
		entry := apidiscoveryv2.APIResourceDiscovery{
			Resource:         names.Plural,
			SingularResource: names.Singular,
			Scope:            apidiscoveryv2.ScopeCluster,
			ResponseKind:     &readAs,
			Verbs:            verbsOf(d),
			ShortNames:       names.ShortNames,
			Categories:       names.Categories,
		}
		if d.Spec.Scope == apiextensionsv1.NamespaceScoped {
			entry.Scope = apidiscoveryv2.ScopeNamespace
		}
		for _, s := range subresources(d, gv) {
			entry.Subresources = append(entry.Subresources, apidiscoveryv2.APISubresourceDiscovery{
				Subresource: s.name, ResponseKind: &s.kind, Verbs: subresourceVerbs,
			})
		}
		list = append(list, entry)
	}
	return list
}
