package handlers

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/sqube/sqube/server/codecs"
)

// addVersionDiscovery makes the document of a version and adds it to the aggregated discovery (KEP-3352).
func (a *API) addVersionDiscovery(served *servedVersion) {
	lister := discovery.APIResourceListerFunc(func() []metav1.APIResource { return served.listed })
	served.discovery = document(discovery.NewAPIVersionHandler(codecs.General(), served.GroupVersion, lister))
	manager := a.config.APIs
	if served.Group == "" {
		manager = a.legacy
	}
	manager.AddGroupVersion(served.Group, served.aggregated)
}

// legacyVersions serves /api, whose only version is v1.
func (a *API) legacyVersions() http.Handler {
	list := discovery.NewLegacyRootAPIHandler(a.config.Discovery, codecs.General(), "/api")
	methods := document(aggregated.WrapAggregatedDiscoveryToHandler(list, a.legacy, nil))
	return http.HandlerFunc(methods.serve)
}

// groupDocument returns the document of a group with these versions, the first of which is the preferred one.
func groupDocument(versions []*VersionDescription) methods {
	group := metav1.APIGroup{Name: versions[0].Group}
	for _, v := range versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: v.String(), Version: v.Version})
	}
	group.PreferredVersion = group.Versions[0]
	return document(discovery.NewAPIGroupHandler(codecs.General(), group))
}

// document returns the methods of a discovery document, which can only be read.
func document(handler http.Handler) methods {
	mediaTypes, _ := negotiation.MediaTypesForSerializer(codecs.General())
	return methods{http.MethodGet: {handler: handler.ServeHTTP, consumes: mediaTypes, produces: mediaTypes}}
}

// connectVerbs are the verbs of discovery for the methods that a storage connects. HEAD and OPTIONS have none.
var connectVerbs = map[string]string{
	http.MethodGet:    "get",
	http.MethodPost:   "create",
	http.MethodPut:    "update",
	http.MethodPatch:  "patch",
	http.MethodDelete: "delete",
}

// describe returns the entry of a target in the discovery of its version.
func describe(t target, kind schema.GroupVersionKind) (metav1.APIResource, error) {
	described := metav1.APIResource{
		Name:       t.path(),
		Namespaced: t.namespaced,
		Kind:       kind.Kind,
		Verbs:      verbsOf(t),
	}
	if own, ok := t.storage.(rest.KindProvider); ok {
		described.Kind = own.Kind()
	}
	if own, ok := t.storage.(rest.GroupVersionKindProvider); ok { // a kind of another group, such as a Scale
		other := own.GroupVersionKind(t.version)
		described.Group, described.Version, described.Kind = other.Group, other.Version, other.Kind
	}
	if named, ok := t.storage.(rest.ShortNamesProvider); ok {
		described.ShortNames = named.ShortNames()
	}
	if categorized, ok := t.storage.(rest.CategoriesProvider); ok {
		described.Categories = categorized.Categories()
	}
	if t.subresource == "" {
		named, ok := t.storage.(rest.SingularNameProvider)
		if !ok {
			return metav1.APIResource{}, errors.New("its storage has no singular name")
		}
		described.SingularName = named.GetSingularName()
	}
	hash, err := storageVersionHash(t)
	if err != nil {
		return metav1.APIResource{}, err
	}
	described.StorageVersionHash = hash
	return described, nil
}

// verbsOf returns the verbs that the storage of a target supports, sorted.
func verbsOf(t target) metav1.Verbs {
	set := map[string]bool{}
	add := func(verb string, supported bool) {
		if supported {
			set[verb] = true
		}
	}
	_, gets := t.storage.(rest.Getter)
	_, getsWithOptions := t.storage.(rest.GetterWithOptions)
	_, updates := t.storage.(rest.Updater)
	_, patches := t.storage.(rest.Patcher)
	_, deletes := t.storage.(rest.GracefulDeleter)
	_, creates := t.storage.(rest.Creater)
	_, createsNamed := t.storage.(rest.NamedCreater)
	add("get", gets || getsWithOptions)
	add("update", updates)
	add("patch", patches)
	add("delete", deletes)
	add("create", creates || createsNamed)
	if t.subresource == "" {
		_, lists := t.storage.(rest.Lister)
		_, watches := t.storage.(rest.Watcher)
		_, deletesAll := t.storage.(rest.CollectionDeleter)
		add("list", lists)
		add("watch", watches)
		add("deletecollection", deletesAll)
	}
	if connecter, ok := t.storage.(rest.Connecter); ok {
		for _, method := range connecter.ConnectMethods() {
			verb, ok := connectVerbs[method]
			add(verb, ok)
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// storageVersionHash returns the hash that lets clients detect a change of the storage version (KEP-2342). It is empty if the
// target is not stored.
func storageVersionHash(t target) (string, error) {
	stored, ok := t.storage.(rest.StorageVersionProvider)
	if !ok || stored.StorageVersion() == nil || !utilfeature.DefaultFeatureGate.Enabled(features.StorageVersionHash) {
		return "", nil
	}
	object := t.storage.New()
	kinds, _, err := t.group.Scheme.ObjectKinds(object)
	if err != nil {
		return "", fmt.Errorf("finding the kind of its storage: %w", err)
	}
	kind, ok := stored.StorageVersion().KindForGroupVersionKinds(kinds)
	if !ok {
		return "", fmt.Errorf("%s has no storage version", reflect.TypeOf(object))
	}
	return discovery.StorageVersionHash(kind.Group, kind.Version, kind.Kind), nil
}
