package handlers

import (
	"fmt"
	"net/http"
	"slices"
	"sort"

	"github.com/gorilla/mux"
	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// addVersionDiscovery makes the resource list of a version and adds it to the aggregated discovery (KEP-3352).
func (a *API) addVersionDiscovery(version schema.GroupVersion, served *servedVersion, resources []metav1.APIResource) error {
	lister := discovery.APIResourceListerFunc(func() []metav1.APIResource { return resources })
	served.discovery = document(a.config.Serializer, discovery.NewAPIVersionHandler(a.config.Serializer, version, lister))

	described, err := genericapi.ConvertGroupVersionIntoToDiscovery(resources)
	if err != nil {
		return fmt.Errorf("describing %s: %w", version, err)
	}
	manager := a.config.APIs
	if version.Group == "" {
		manager = a.legacy
	}
	manager.AddGroupVersion(version.Group, apidiscovery.APIVersionDiscovery{
		Version:   version.Version,
		Resources: described,
		Freshness: apidiscovery.DiscoveryFreshnessCurrent,
	})
	return nil
}

// addGroupDiscovery makes the documents of a group with the given versions, preferred first.
func (a *API) addGroupDiscovery(name string, versions []schema.GroupVersion) {
	group := metav1.APIGroup{Name: name}
	for i, version := range versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{
			GroupVersion: version.String(),
			Version:      version.Version,
		})
		a.config.APIs.SetGroupVersionPriority(metav1.GroupVersion(version), groupPriority(name), len(versions)-i)
	}
	group.PreferredVersion = group.Versions[0]
	a.apiGroups = append(a.apiGroups, group)
	a.groups[name] = a.object(func() runtime.Object { return group.DeepCopy() })
}

// serveVersion serves /api/VERSION and /apis/GROUP/VERSION.
func (a *API) serveVersion(w http.ResponseWriter, r *http.Request) {
	found := mux.Vars(r)
	version, ok := a.versions[schema.GroupVersion{Group: found["group"], Version: found["version"]}]
	if !ok {
		a.serveUnknown(w, r)
		return
	}
	version.discovery.serve(w, r, a.refuse)
}

// serveGroup serves /apis/GROUP.
func (a *API) serveGroup(w http.ResponseWriter, r *http.Request) {
	group, ok := a.groups[mux.Vars(r)["group"]]
	if !ok {
		a.serveUnknown(w, r)
		return
	}
	group.ServeHTTP(w, r)
}

// groupList serves /apis: every group, or with aggregated discovery every resource of every group.
func (a *API) groupList() http.Handler {
	list := a.object(func() runtime.Object { return &metav1.APIGroupList{Groups: a.allGroups()} })
	return aggregated.WrapAggregatedDiscoveryToHandler(list, a.config.APIs, nil)
}

// allGroups returns the built-in groups and those of custom resources, in the order of discovery.
func (a *API) allGroups() []metav1.APIGroup {
	groups := slices.Clone(a.apiGroups)
	for _, group := range a.config.CustomGroups() {
		if _, builtIn := a.groups[group.Name]; !builtIn {
			groups = append(groups, group)
		}
	}
	sort.SliceStable(groups, func(i, j int) bool { return groupBefore(groups[i], groups[j]) })
	return groups
}

// legacyVersions serves /api, whose only version is v1.
func (a *API) legacyVersions() http.Handler {
	list := discovery.NewLegacyRootAPIHandler(a.config.Discovery, a.config.Serializer, "/api")
	methods := document(a.config.Serializer, aggregated.WrapAggregatedDiscoveryToHandler(list, a.legacy, nil))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { methods.serve(w, r, a.refuse) })
}

// object serves an object in the media type that the client prefers, whatever the method, as upstream does for /apis.
func (a *API) object(make func() runtime.Object) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		responsewriters.WriteObjectNegotiated(a.config.Serializer, negotiation.DefaultEndpointRestrictions,
			schema.GroupVersion{}, w, r, http.StatusOK, make(), false)
	})
}

// document returns the methods of a discovery document, which can only be read.
func document(serializer runtime.NegotiatedSerializer, handler http.Handler) methods {
	mediaTypes, _ := negotiation.MediaTypesForSerializer(serializer)
	return methods{http.MethodGet: {handler: handler.ServeHTTP, consumes: mediaTypes, produces: mediaTypes}}
}
