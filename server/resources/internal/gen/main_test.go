package main

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	compiled "k8s.io/kubernetes/pkg/generated/openapi"

	"github.com/sqube/sqube/server/resources/internal/definitions"
)

// TestDefinitions compares the embedded definitions with the schemas that are compiled into kube-apiserver: server-side apply must
// treat every kind in the same way.
func TestDefinitions(t *testing.T) {
	file, err := os.Open("../../definitions.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	embedded, err := definitions.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	_, dir, err := module()
	if err != nil {
		t.Fatal(err)
	}
	documents, err := upstream(dir)
	if err != nil {
		t.Fatal(err)
	}
	config := genericapiserver.DefaultOpenAPIV3Config(compiled.GetOpenAPIDefinitions, openapi.NewDefinitionNamer(legacyscheme.Scheme))
	schemas, err := builder3.BuildOpenAPIDefinitionsForResources(config, slices.Collect(maps.Keys(documents))...)
	if err != nil {
		t.Fatal(err)
	}
	made, err := define(schemas)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := made.Write(&text); err != nil {
		t.Fatal(err)
	}
	want, err := definitions.Read(&text) // with defaults of the types that JSON has
	if err != nil {
		t.Fatal(err)
	}
	got := definitions.FromSchema(embedded.Schema())
	if diff := cmp.Diff(byName(want.Types), byName(got)); diff != "" {
		t.Errorf("types (-compiled +embedded; run go generate ./server/resources):\n%s", diff)
	}
	known := byName(got)
	for _, kind := range embedded.Kinds {
		if _, ok := known[kind.Type]; !ok {
			t.Errorf("%v has no type", kind)
		}
	}
}

func byName(types []definitions.Type) map[string]definitions.Atom {
	m := map[string]definitions.Atom{}
	for _, t := range types {
		m[t.Name] = t.Atom
	}
	return m
}
