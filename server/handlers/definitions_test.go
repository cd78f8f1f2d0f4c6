package handlers_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"

	"github.com/sqube/sqube/server/handlers"
)

// TestEveryKindHasADefinition checks that server-side apply works with every kind that can be enabled: without a definition
// of the kind, field owners could not be recorded.
func TestEveryKindHasADefinition(t *testing.T) {
	featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, featuregatetesting.FeatureOverrides{
		"AllAlpha": true,
		"AllBeta":  true,
	})
	var config handlers.Config
	newAPI(t, options{runtimeConfig: map[string]string{"api/all": "true"}, change: func(c *handlers.Config) { config = *c }})
	seen := 0
	for _, group := range config.Groups {
		for _, version := range group.PrioritizedVersions {
			for path, storage := range group.VersionedResourcesStorageMap[version.Version] {
				if _, connects := storage.(rest.Connecter); connects {
					continue // its kind is made of query parameters
				}
				kind, err := endpoints.GetResourceKind(version, storage, group.Scheme)
				if err != nil {
					t.Fatalf("%s %s: %v", version, path, err)
				}
				if err := convert(config, group.Scheme, kind); err != nil {
					t.Errorf("%s %s: %v", version, path, err)
				}
				seen++
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d resources were checked", seen)
	}
}

func convert(config handlers.Config, scheme *runtime.Scheme, kind schema.GroupVersionKind) error {
	object, err := scheme.New(kind)
	if err != nil {
		return err
	}
	object.GetObjectKind().SetGroupVersionKind(kind)
	_, err = config.TypeConverter.ObjectToTyped(object)
	return err
}
