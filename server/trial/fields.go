package trial

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Resources that are treated in their own way.
var (
	leases          = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	eventsResource  = schema.GroupResource{Resource: "events"}
	pods            = schema.GroupResource{Resource: "pods"}
	nodes           = schema.GroupResource{Resource: "nodes"}
	namespaces      = schema.GroupResource{Resource: "namespaces"}
	services        = schema.GroupResource{Resource: "services"}
	endpoints       = schema.GroupResource{Resource: "endpoints"}
	claims          = schema.GroupResource{Resource: "persistentvolumeclaims"}
	volumes         = schema.GroupResource{Resource: "persistentvolumes"}
	quotas          = schema.GroupResource{Resource: "resourcequotas"}
	endpointSlices  = schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
	deployments     = schema.GroupResource{Group: "apps", Resource: "deployments"}
	replicaSets     = schema.GroupResource{Group: "apps", Resource: "replicasets"}
	statefulSets    = schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	daemonSets      = schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	jobs            = schema.GroupResource{Group: "batch", Resource: "jobs"}
	cronJobs        = schema.GroupResource{Group: "batch", Resource: "cronjobs"}
	budgets         = schema.GroupResource{Group: "policy", Resource: "poddisruptionbudgets"}
	autoscalers     = schema.GroupResource{Group: "autoscaling", Resource: "horizontalpodautoscalers"}
	definitions     = schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	clusterRoles    = schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}
	ingresses       = schema.GroupResource{Group: "networking.k8s.io", Resource: "ingresses"}
	apiServices     = schema.GroupResource{Group: "apiregistration.k8s.io", Resource: "apiservices"}
	attachments     = schema.GroupResource{Group: "storage.k8s.io", Resource: "volumeattachments"}
	gatewayAPIGroup = "gateway.networking.k8s.io"
)

// field returns what is at a path in an object, nil for nothing.
func field(object any, path ...string) any {
	for _, step := range path {
		fields, _ := object.(map[string]any)
		object = fields[step]
	}
	return object
}

func text(object any, path ...string) string {
	s, _ := field(object, path...).(string)
	return s
}

func number(object any, path ...string) int64 {
	n, _ := field(object, path...).(int64)
	return n
}

// numberOr is number with a default for objects without the field.
func numberOr(otherwise int64, object any, path ...string) int64 {
	if n, ok := field(object, path...).(int64); ok {
		return n
	}
	return otherwise
}

func items(object any, path ...string) []any {
	list, _ := field(object, path...).([]any)
	return list
}

// condition returns a condition of an object's status; nil if there is none.
func condition(object any, kind string) any {
	for _, c := range items(object, "status", "conditions") {
		if text(c, "type") == kind {
			return c
		}
	}
	return nil
}

// owner is an object that another names as its owner.
type owner struct {
	schema.GroupVersionKind
	name string
	uid  types.UID
}

// ownersOf returns the owners of an object, the controller first.
func ownersOf(object any) (all []owner) {
	for _, reference := range items(object, "metadata", "ownerReferences") {
		version, err := schema.ParseGroupVersion(text(reference, "apiVersion"))
		if err != nil {
			continue
		}
		o := owner{version.WithKind(text(reference, "kind")), text(reference, "name"), types.UID(text(reference, "uid"))}
		if field(reference, "controller") == true {
			all = append([]owner{o}, all...)
		} else {
			all = append(all, o)
		}
	}
	return all
}

// kindName returns a kind as kubectl prints it: deployment.apps.
func kindName(group, kind string) string {
	if group != "" {
		return strings.ToLower(kind) + "." + group
	}
	return strings.ToLower(kind)
}
