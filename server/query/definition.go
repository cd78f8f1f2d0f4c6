package query

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/server/changes"
)

// Definition describes the resource in the form of a CustomResourceDefinition, from which OpenAPI documents are made.
func Definition() *apiextensionsv1.CustomResourceDefinition {
	described := func(kind, description string) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: kind, Description: description}
	}
	listOf := func(item apiextensionsv1.JSONSchemaProps, description string) apiextensionsv1.JSONSchemaProps {
		list := described("array", description)
		list.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item}
		return list
	}
	fields := func(description string, of map[string]apiextensionsv1.JSONSchemaProps, required ...string) apiextensionsv1.JSONSchemaProps {
		object := described("object", description)
		object.Properties, object.Required = of, required
		return object
	}
	row := listOf(apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: ptr.To(true)}, "")
	d := changes.Define("Query", Resource, "query", fields(
		"Query is a question in SQL about what is stored, and the answer. It can only be created, which takes the rights of a cluster-admin; the answer is in the status.",
		map[string]apiextensionsv1.JSONSchemaProps{
			"spec": fields("The question.", map[string]apiextensionsv1.JSONSchemaProps{
				"sql":            described("string", "One statement that reads, in the SQL of the database: of the views objects and history, say."),
				"timeoutSeconds": described("integer", "How long it may take, at most 30. Default 10."),
				"maxRows":        described("integer", "How many rows are returned, at most 10000. Default 1000."),
			}, "sql"),
			"status": fields("The answer.", map[string]apiextensionsv1.JSONSchemaProps{
				"columns":      listOf(described("string", ""), "The names of the columns."),
				"rows":         listOf(row, "The rows, each with a value for each column: a number, a boolean, a string or null. Bytes are a string in base64."),
				"cut":          described("string", "Why there are not all rows; absent if there are."),
				"milliseconds": described("integer", "How long it took."),
			}),
		}, "spec"))
	d.Spec.Scope = apiextensionsv1.ClusterScoped
	return d
}
