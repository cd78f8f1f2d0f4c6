package main

import (
	"compress/gzip"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	compiled "k8s.io/kubernetes/pkg/generated/openapi"
)

// TestDefinitions holds the embedded definitions to those that kube-apiserver has compiled in: server-side apply has to
// understand every kind in the same way.
func TestDefinitions(t *testing.T) {
	file, err := os.Open("../../definitions.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var embedded map[string]*spec.Schema
	if err := json.NewDecoder(unpacked).Decode(&embedded); err != nil {
		t.Fatal(err)
	}
	config := genericapiserver.DefaultOpenAPIV3Config(compiled.GetOpenAPIDefinitions, openapi.NewDefinitionNamer(legacyscheme.Scheme))
	upstream, err := builder3.BuildOpenAPIDefinitionsForResources(config, slices.Collect(maps.Keys(embedded))...)
	if err != nil {
		t.Fatal(err)
	}
	for name, schema := range upstream {
		shrink(schema)
		want, got := generic(t, schema), generic(t, embedded[name])
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-compiled +embedded; run go generate ./server/resources):\n%s", name, diff)
		}
	}
}

// generic returns a schema as JSON has it, without the kinds it is for: upstream takes those from a scheme that
// GenericAPIServer fills.
func generic(t *testing.T, schema *spec.Schema) map[string]any {
	t.Helper()
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	delete(object, "x-kubernetes-group-version-kind")
	return object
}
