package aggregation

import (
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	"k8s.io/kube-aggregator/pkg/apiserver/scheme"
)

// groups lists the groups of all APIServices except the core group, by priority. apiregistration.k8s.io, which has no APIService,
// comes first.
func (a *Aggregator) groups() ([]metav1.APIGroup, error) {
	services, err := a.services.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	self := &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{
		Group: apiregistrationv1.GroupName, Version: apiregistrationv1.SchemeGroupVersion.Version,
	}}
	groups := []metav1.APIGroup{describe([]*apiregistrationv1.APIService{self})}
	for _, versions := range helper.SortedByGroupAndVersion(services) {
		if versions[0].Spec.Group != "" {
			groups = append(groups, describe(versions))
		}
	}
	return groups, nil
}

// Paths lists the paths of the groups and their versions, for the document at /.
func (a *Aggregator) Paths() ([]string, error) {
	groups, err := a.groups()
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, group := range groups {
		paths = append(paths, "/apis/"+group.Name)
		for _, version := range group.Versions {
			paths = append(paths, "/apis/"+version.GroupVersion)
		}
	}
	return paths, nil
}

// describe returns the group with the given versions, the first of which is the preferred one.
func describe(versions []*apiregistrationv1.APIService) metav1.APIGroup {
	group := metav1.APIGroup{Name: versions[0].Spec.Group}
	for _, s := range versions {
		gv := schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version}
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}

func (a *Aggregator) serveGroups(w http.ResponseWriter, r *http.Request) {
	groups, err := a.groups()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	write(w, r, &metav1.APIGroupList{Groups: groups})
}

// serveGroup serves one group. It returns false if there is no such group, and for apiregistration.k8s.io, which has no APIService
// and is served like a version. A built-in group exists even without its APIServices, which users may delete: the server creates
// them only when it starts.
func (a *Aggregator) serveGroup(w http.ResponseWriter, r *http.Request, name string) bool {
	if name == apiregistrationv1.GroupName {
		return false
	}
	groups, err := a.groups()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return true
	}
	for _, versions := range helper.SortedByGroupAndVersion(slices.Clone(a.registrar.builtIn)) {
		groups = append(groups, describe(versions))
	}
	// The core group has no name: its document is at /api.
	i := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == name && name != "" })
	if i < 0 {
		return false
	}
	write(w, r, &groups[i])
	return true
}

// write sends an object in the media type that the client prefers, for every method, like upstream.
func write(w http.ResponseWriter, r *http.Request, object runtime.Object) {
	responsewriters.WriteObjectNegotiated(scheme.Codecs, negotiation.DefaultEndpointRestrictions, schema.GroupVersion{}, w, r, http.StatusOK, object, false)
}
