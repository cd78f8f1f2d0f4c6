package resources

import (
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kubernetes/pkg/controlplane"

	"github.com/sqube/sqube/test/harness"
)

// TestDefaultVersionsAreUpstreams checks that the versions that are enabled by default are those in kube-apiserver's list.
func TestDefaultVersionsAreUpstreams(t *testing.T) {
	ours := DefaultVersions()
	for version, enabled := range controlplane.DefaultAPIResourceConfigSource().GroupVersionConfigs {
		if got := ours.GroupVersionConfigs[version]; got != enabled {
			t.Errorf("%s: enabled %t, upstream %t", version, got, enabled)
		}
	}
	for _, version := range []schema.GroupVersion{apiregistration.SchemeGroupVersion, apiextensions.SchemeGroupVersion} {
		if !ours.GroupVersionConfigs[version] {
			t.Errorf("%s is not enabled", version)
		}
	}
}

func TestParseRuntimeConfig(t *testing.T) {
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	cidrs := schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1beta1", Resource: "servicecidrs"}
	pools := schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1alpha3", Resource: "devicetaintrules"}
	for name, test := range map[string]struct {
		values  map[string]string
		on, off []schema.GroupVersionResource
	}{
		"nothing":                       {on: []schema.GroupVersionResource{deployments}, off: []schema.GroupVersionResource{cidrs, pools}},
		"all":                           {values: map[string]string{"api/all": "true"}, on: []schema.GroupVersionResource{deployments, cidrs, pools}},
		"beta":                          {values: map[string]string{"api/beta": "true"}, on: []schema.GroupVersionResource{deployments, cidrs}, off: []schema.GroupVersionResource{pools}},
		"one version":                   {values: map[string]string{"networking.k8s.io/v1beta1": ""}, on: []schema.GroupVersionResource{cidrs}},
		"one version off":               {values: map[string]string{"apps/v1": "false"}, off: []schema.GroupVersionResource{deployments}},
		"core":                          {values: map[string]string{"v1": "false"}, off: []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}}},
		"core resource":                 {values: map[string]string{"/v1/endpoints": "false", "api/legacy": ""}, on: []schema.GroupVersionResource{{Version: "v1", Resource: "pods"}}, off: []schema.GroupVersionResource{{Version: "v1", Resource: "endpoints"}}},
		"one resource":                  {values: map[string]string{"resource.k8s.io/v1alpha3/devicetaintrules": "true"}, on: []schema.GroupVersionResource{pools}, off: []schema.GroupVersionResource{cidrs}},
		"specific wins over general":    {values: map[string]string{"api/all": "false", "apps/v1": "true"}, on: []schema.GroupVersionResource{deployments}, off: []schema.GroupVersionResource{cidrs}},
		"all off but a stable resource": {values: map[string]string{"api/ga": "false", "apps/v1/deployments": "true"}, on: []schema.GroupVersionResource{deployments}},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := ParseRuntimeConfig(test.values)
			harness.Must(t, err)
			for _, resource := range test.on {
				if !config.ResourceEnabled(resource) {
					t.Errorf("%s is off", resource)
				}
			}
			for _, resource := range test.off {
				if config.ResourceEnabled(resource) {
					t.Errorf("%s is on", resource)
				}
			}
		})
	}
}

func TestParseRuntimeConfigRefuses(t *testing.T) {
	for key, value := range map[string]string{
		"v1/pods/log/x":       "perhaps",     // not a boolean
		"nosuchgroup/v1":      "true",        // unknown group
		"apps/v9":             "true",        // unknown version
		"apps/v1/Deployments": "true",        // not a resource's name
		"api/beta":            "maybe",       // not a boolean
		"api/all":             "false",       // nothing left to serve
		"apps/v1":             "yes, please", // not a boolean
	} {
		_, err := ParseRuntimeConfig(map[string]string{key: value})
		if err == nil {
			t.Errorf("%s=%s was accepted", key, value)
			continue
		}
		if !strings.HasPrefix(err.Error(), "--runtime-config: ") {
			t.Errorf("%s=%s: the error doesn't name the flag: %v", key, value, err)
		}
	}
}
