package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	compiled "k8s.io/kubernetes/pkg/generated/openapi"
	"sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/sqube/sqube/server/resources/internal/definitions"
	"github.com/sqube/sqube/test/harness"
)

// TestDefinitions compares the embedded definitions with the schemas that are compiled into kube-apiserver: server-side apply must
// treat every kind in the same way.
func TestDefinitions(t *testing.T) {
	file, err := os.Open("../../definitions.gz")
	harness.Must(t, err)
	defer file.Close()
	embedded, err := definitions.Read(file)
	harness.Must(t, err)
	_, dir, err := module()
	harness.Must(t, err)
	documents, err := upstream(dir)
	harness.Must(t, err)
	config := genericapiserver.DefaultOpenAPIV3Config(compiled.GetOpenAPIDefinitions, openapi.NewDefinitionNamer(legacyscheme.Scheme))
	schemas, err := builder3.BuildOpenAPIDefinitionsForResources(config, slices.Collect(maps.Keys(documents))...)
	harness.Must(t, err)
	made, err := define(schemas)
	harness.Must(t, err)
	defaults := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Default" },
		cmp.Comparer(func(a, b any) bool { return fmt.Sprint(a) == fmt.Sprint(b) })) // of Go, and of JSON
	fields := cmpopts.SortSlices(func(a, b schema.StructField) bool { return a.Name < b.Name })
	got := byName(embedded.Types)
	if diff := cmp.Diff(byName(made.Types), got, defaults, fields, cmpopts.IgnoreUnexported(schema.Map{})); diff != "" {
		t.Errorf("types (-compiled +embedded; run go generate ./server/resources):\n%s", diff)
	}
	for _, kind := range embedded.Kinds {
		if _, ok := got[kind.Type]; !ok {
			t.Errorf("%v has no type", kind)
		}
	}
}

func byName(types []schema.TypeDef) map[string]schema.Atom {
	m := map[string]schema.Atom{}
	for _, t := range types {
		m[t.Name] = t.Atom
	}
	return m
}
