package resources

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/managedfields"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/util"
	definitions "k8s.io/kubernetes/pkg/generated/openapi"
)

// NewTypeConverter returns what server-side apply knows about the kinds the groups serve: which lists are maps or sets and
// by which keys (KEP-555). The definitions are those compiled into k8s.io/kubernetes, which has them for
// apiextensions.k8s.io and apiregistration.k8s.io too. It fails for a kind without a definition.
func NewTypeConverter(groups []*genericapiserver.APIGroupInfo) (managedfields.TypeConverter, error) {
	names, err := definitionNames(groups)
	if err != nil {
		return nil, err
	}
	config := genericapiserver.DefaultOpenAPIV3Config(definitions.GetOpenAPIDefinitions, openapi.NewDefinitionNamer(schemes...))
	models, err := builder3.BuildOpenAPIDefinitionsForResources(config, names...)
	if err != nil {
		return nil, fmt.Errorf("collecting the definitions of the served kinds: %w", err)
	}
	converter, err := managedfields.NewTypeConverter(models, false)
	if err != nil {
		return nil, fmt.Errorf("reading the definitions of the served kinds: %w", err)
	}
	return converter, nil
}

// definitionNames returns the name of the definition of every kind the groups serve.
func definitionNames(groups []*genericapiserver.APIGroupInfo) ([]string, error) {
	var names []string
	for _, group := range groups {
		for _, version := range group.PrioritizedVersions {
			for path, storage := range group.VersionedResourcesStorageMap[version.Version] {
				kind, err := genericapi.GetResourceKind(version, storage, group.Scheme)
				if err != nil {
					return nil, fmt.Errorf("finding the kind of %s in %s: %w", path, version, err)
				}
				object, err := group.Scheme.New(kind)
				if err != nil {
					return nil, fmt.Errorf("finding the type of %s: %w", kind, err)
				}
				names = append(names, util.GetCanonicalTypeName(object))
			}
		}
	}
	return names, nil
}
