package handlers

import (
	"fmt"
	"net/http"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
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

// legacyVersions serves /api, whose only version is v1.
func (a *API) legacyVersions() http.Handler {
	list := discovery.NewLegacyRootAPIHandler(a.config.Discovery, a.config.Serializer, "/api")
	methods := document(a.config.Serializer, aggregated.WrapAggregatedDiscoveryToHandler(list, a.legacy, nil))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { methods.serve(w, r, a.refuse) })
}

// document returns the methods of a discovery document, which can only be read.
func document(serializer runtime.NegotiatedSerializer, handler http.Handler) methods {
	mediaTypes, _ := negotiation.MediaTypesForSerializer(serializer)
	return methods{http.MethodGet: {handler: handler.ServeHTTP, consumes: mediaTypes, produces: mediaTypes}}
}
