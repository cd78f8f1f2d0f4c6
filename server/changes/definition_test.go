package changes

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// TestDefinition compares the documents with the types.
func TestDefinition(t *testing.T) {
	root := *Definition().Spec.Versions[0].Schema.OpenAPIV3Schema
	compare(t, "Change", reflect.TypeFor[Change](), root)
	compare(t, "Object", reflect.TypeFor[Object](), root.Properties["object"])
	compare(t, "Object", reflect.TypeFor[Object](), *root.Properties["owners"].Items.Schema)
	compare(t, "Field", reflect.TypeFor[Field](), *root.Properties["changed"].Items.Schema)
}

func compare(t *testing.T, what string, of reflect.Type, schema apiextensionsv1.JSONSchemaProps) {
	var required []string
	count := 0
	for field := range of.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous {
			continue
		}
		count++
		if options == "" {
			required = append(required, name)
		}
		if described, ok := schema.Properties[name]; !ok || described.Description == "" && field.Type.Kind() != reflect.Slice {
			t.Errorf("%s.%s is not described", what, name)
		}
	}
	if count != len(schema.Properties) || !slices.Equal(required, schema.Required) {
		t.Errorf("%s: %d fields are described instead of %d; %q are required instead of %q", what, len(schema.Properties), count, schema.Required, required)
	}
}
