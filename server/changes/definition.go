package changes

import (
	"crypto/sha256"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// Definition describes the resource in the form of a CustomResourceDefinition, from which OpenAPI documents are made.
func Definition() *apiextensionsv1.CustomResourceDefinition {
	return Define("Change", Resource, "change", apiextensionsv1.JSONSchemaProps{
		Type:        "object",
		Description: "Change is one write to one object: who changed what, and when. Its name and its resourceVersion are the revision that it made, its namespace is the object's. It can be read only by users who may get the object.",
		Required:    []string{"object", "operation"},
		Properties: properties{
			"object":         schemaOf(Object{}, "The object that was changed."),
			"operation":      described("string", "What was done: create, update or delete."),
			"user":           described("string", "Who did it."),
			"fieldManager":   described("string", "The field manager of the request, or the first part of its user agent."),
			"address":        described("string", "The address of the client, if it is known."),
			"auditID":        described("string", "The id of the request in the audit log, if it is known."),
			"changed":        listOf(schemaOf(Field{}, ""), "The fields that an update changed, except managedFields."),
			"changedUnknown": described("boolean", "Set if the version before an update is no longer kept, or can't be read."),
			"moreChanged":    described("integer", "How many changed fields are left out, since there are too many."),
			"owners":         listOf(schemaOf(Object{}, ""), "The object's controller, or its first owner if it has none, the owner of that, and so on, as they were after the change, as far as that is kept and the user may get them."),
		},
	})
}

type properties = map[string]apiextensionsv1.JSONSchemaProps

func described(kind, description string) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: kind, Description: description}
}

func listOf(item apiextensionsv1.JSONSchemaProps, description string) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: "array", Description: description, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item}}
}

func schemaOf(value any, description string) apiextensionsv1.JSONSchemaProps {
	s := described("object", description)
	switch value.(type) {
	case Object:
		s.Required = []string{"name"}
		s.Properties = properties{
			"apiVersion": described("string", "The version in which it is stored."),
			"kind":       described("string", "Its kind."),
			"resource":   described("string", "The plural name of its resource."),
			"namespace":  described("string", "Its namespace, if it has one."),
			"name":       described("string", "Its name."),
			"uid":        described("string", "Its uid."),
		}
	case Field:
		s.Required = []string{"path"}
		anything := func(description string) apiextensionsv1.JSONSchemaProps {
			return apiextensionsv1.JSONSchemaProps{Description: description, XPreserveUnknownFields: ptr.To(true)}
		}
		s.Properties = properties{
			"path":     described("string", "Its path, such as .spec.template.spec.containers[name=web].image."),
			"old":      anything("The value that it had; absent if there was no such field."),
			"new":      anything("The value that it has; absent if there is no such field."),
			"oldBytes": described("integer", "The length of the old value, if it was cut. What is left is a string: how its JSON begins."),
			"newBytes": described("integer", "The length of the new value, if it was cut."),
		}
	}
	return s
}

// Define describes a resource of the group.
func Define(kind, plural, singular string, schema apiextensionsv1.JSONSchemaProps) *apiextensionsv1.CustomResourceDefinition {
	id := sha256.Sum256([]byte(fmt.Sprintf("%+v", schema.Properties)))
	names := apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: singular}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + GroupVersion.Group, UID: types.UID(fmt.Sprintf("%x", id))},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: GroupVersion.Group, Names: names, Scope: apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: GroupVersion.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema},
			}},
		},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{AcceptedNames: names},
	}
}
