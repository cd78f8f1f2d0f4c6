package undo

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/sqube/sqube/server/changes"
)

// Definition describes the resource in the form of a CustomResourceDefinition, from which OpenAPI documents are made.
func Definition() *apiextensionsv1.CustomResourceDefinition {
	moment := described("string", "")
	moment.Format = "date-time"
	change := fields("A change in history.", properties{
		"revision": described("integer", "Its revision."), "operation": described("string", "create, update or delete."), "time": moment,
		"user": described("string", "Who made it."), "fieldManager": described("string", "With which manager."),
	})
	selector := func(description string) apiextensionsv1.JSONSchemaProps {
		return fields(description, properties{
			"afterRevision": described("integer", "Only what was written after this revision."), "beforeRevision": described("integer", "Only what was written before this revision."),
			"user": described("string", "Only what this user did."), "fieldManager": described("string", "Only what was done with this manager."),
			"auditID": described("string", "Only what was done by the request with this id in the audit log. All changes of one undo have the same."),
			"since":   moment, "until": moment, "namespace": described("string", "Only what was done in this namespace."),
			"resources": listOf(described("string", ""), "Only of these resources, such as configmaps or deployments.apps."),
		})
	}
	step := fields("", properties{
		"action": described("string", "create, update, delete or leave."),
		"object": fields("The object.", properties{
			"apiVersion": described("string", ""), "kind": described("string", ""), "resource": described("string", ""),
			"namespace": described("string", ""), "name": described("string", ""),
		}),
		"reason": described("string", "Why the object is left as it is."),
		"undoes": listOf(change, "The changes that the step takes back, the newest first; at most a few."),
		"diff": listOf(fields("", properties{
			"path": described("string", ""), "from": described("string", "The JSON of the value; absent if there is none."), "to": described("string", "The JSON of what it becomes; absent if it is removed."),
		}), "The fields as they are and as they become. A step that creates an object has none."),
		"warnings": listOf(described("string", ""), "What will be different from what was."),
		"conflicts": listOf(fields("", properties{
			"path": described("string", "The field; absent for the whole object."), "change": change, "forced": described("boolean", "Set if the undo overwrites it."),
		}), "Later changes by others to what the undo would change."),
		"result":  described("string", "done, failed or notTried; absent if the plan is not applied."),
		"message": described("string", "Why the step failed, or what it had to do differently."),
	})
	d := changes.Define("Undo", Resource, "undo", fields(
		"Undo brings back what was: an object as it was at a moment, a deleted object or namespace, what a user or a manager changed. It can only be created. The answer has the plan in its status; with spec.apply, it has been applied with the rights of the user.",
		properties{
			"spec": fields("What to undo: either object or changes.", properties{
				"object": fields("What to bring back. With a Namespace or a CustomResourceDefinition comes what was in it.", properties{
					"apiVersion": described("string", "The group of the kind, with a version."), "kind": described("string", "Either the kind,"),
					"group": described("string", ""), "resource": described("string", "or the group and the resource."),
					"namespace": described("string", ""), "name": described("string", ""),
				}),
				"to": fields("The moment to which the object is brought back. If it is unset, the object must have been deleted.", properties{
					"revision": described("integer", "A resourceVersion."), "before": described("integer", "The revision of the first change to take back."), "time": moment,
				}),
				"changes": selector("The changes to take back, whatever they are of. It must have user, fieldManager, auditID, since or afterRevision."),
				"force":   described("boolean", "Overwrite later changes by others."),
				"apply":   described("boolean", "Apply the plan. Otherwise it is only returned."),
			}),
			"status": fields("The answer.", properties{
				"plan":     listOf(step, "The steps in their order."),
				"complete": described("boolean", "Set if after applying the plan nothing is left of it to do."),
				"applied":  selector("The changes that the undo has made, as spec.changes of one that takes them back."),
				"notes":    listOf(described("string", ""), "What concerns the whole plan."),
			}),
		}))
	d.Spec.Scope = apiextensionsv1.ClusterScoped
	return d
}

type properties = map[string]apiextensionsv1.JSONSchemaProps

func described(kind, description string) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{Type: kind, Description: description}
}

func fields(description string, of properties) apiextensionsv1.JSONSchemaProps {
	s := described("object", description)
	s.Properties = of
	return s
}

func listOf(item apiextensionsv1.JSONSchemaProps, description string) apiextensionsv1.JSONSchemaProps {
	s := described("array", description)
	s.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item}
	return s
}
