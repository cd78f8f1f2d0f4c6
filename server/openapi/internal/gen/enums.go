package main

import (
	"strings"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	generated "k8s.io/kubernetes/pkg/generated/openapi"
)

// enumHeader begins the list of values in the description of an enum, or of a list of enums.
const enumHeader = "Possible enum values:"

// enums adds enums to schemas. Upstream's snapshot is made with the feature gate OpenAPIEnums disabled, because clients are
// generated from it; in a server it is enabled.
type enums map[string]common.OpenAPIDefinition

func newEnums() enums {
	return generated.GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef("#/" + name) })
}

// restore changes the schemas (by definition name) in place.
func (e enums) restore(schemas object) {
	for name, schema := range schemas {
		if definition, ok := e[name]; ok {
			restore(schema, &definition.Schema)
		}
	}
}

func restore(schema any, from *spec.Schema) {
	to, ok := schema.(object)
	if !ok || from == nil {
		return
	}
	if len(from.Enum) > 0 {
		to["enum"] = from.Enum
	}
	if strings.Contains(from.Description, enumHeader) {
		to["description"] = from.Description
	}
	if properties, ok := to["properties"].(object); ok {
		for name, property := range from.Properties {
			restore(properties[name], &property)
		}
	}
	if from.Items != nil {
		restore(to["items"], from.Items.Schema)
	}
	if from.AdditionalProperties != nil {
		restore(to["additionalProperties"], from.AdditionalProperties.Schema)
	}
}
