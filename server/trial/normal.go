package trial

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// serversAnnotations are prefixes of annotations that controllers and clients set for themselves.
var serversAnnotations = []string{
	"deployment.kubernetes.io/", "kubectl.kubernetes.io/last-applied-configuration", "pv.kubernetes.io/", "volume.kubernetes.io/",
	"volume.beta.kubernetes.io/", "node.alpha.kubernetes.io/", "volumes.kubernetes.io/", "endpoints.kubernetes.io/",
	"control-plane.alpha.kubernetes.io/leader", "batch.kubernetes.io/cronjob-scheduled-timestamp", "deprecated.daemonset.template.generation",
	"kubernetes.io/service-account.uid", "statefulset.kubernetes.io/", "batch.kubernetes.io/job-completion-index",
}

// normal removes from an object what servers set, and what is chosen at random: the rest is the same in two copies to which the same has happened.
// It changes the object. The status is not in it: see stateOf.
func normal(resource schema.GroupResource, object map[string]any) map[string]any {
	if object == nil {
		return nil
	}
	delete(object, "status")
	if metadata, _ := object["metadata"].(map[string]any); metadata != nil {
		for _, name := range []string{
			"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink", "deletionTimestamp", "deletionGracePeriodSeconds",
		} {
			delete(metadata, name)
		}
		for _, reference := range items(metadata, "ownerReferences") {
			if fields, _ := reference.(map[string]any); fields != nil {
				delete(fields, "uid")
			}
		}
		withoutAnnotations(metadata)
	}
	spec, _ := object["spec"].(map[string]any)
	switch resource {
	case pods:
		delete(spec, "nodeName")
		withoutToken(spec)
	case endpoints, endpointSlices: // the addresses of Pods
		delete(object, "subsets")
		delete(object, "endpoints")
	case nodes:
		withoutTaints(spec)
	case claims:
		delete(spec, "volumeName")
	case volumes:
		if claim, _ := spec["claimRef"].(map[string]any); claim != nil {
			delete(claim, "uid")
			delete(claim, "resourceVersion")
		}
	case jobs:
		delete(spec, "selector")
		for _, of := range []any{object, field(spec, "template")} {
			if labels, _ := field(of, "metadata", "labels").(map[string]any); labels != nil {
				delete(labels, "controller-uid")
				delete(labels, "batch.kubernetes.io/controller-uid")
			}
		}
	}
	return object
}

func withoutAnnotations(metadata map[string]any) {
	annotations, _ := metadata["annotations"].(map[string]any)
	for name := range annotations {
		for _, prefix := range serversAnnotations {
			if strings.HasPrefix(name, prefix) {
				delete(annotations, name)
			}
		}
	}
	if len(annotations) == 0 {
		delete(metadata, "annotations")
	}
}

// withoutTaints removes the taints that say what the conditions of a node say.
func withoutTaints(spec map[string]any) {
	if spec == nil {
		return
	}
	taints := slices.DeleteFunc(items(spec, "taints"), func(taint any) bool { return strings.HasPrefix(text(taint, "key"), "node.kubernetes.io/") })
	if spec["taints"] = taints; len(taints) == 0 {
		delete(spec, "taints")
	}
}

// withoutToken removes the volume of a Pod's token, whose name is random.
func withoutToken(spec map[string]any) {
	token := func(item any) bool { return strings.HasPrefix(text(item, "name"), "kube-api-access-") }
	remove := func(from map[string]any, name string) {
		kept := slices.DeleteFunc(items(from, name), token)
		if from[name] = kept; len(kept) == 0 {
			delete(from, name)
		}
	}
	if spec == nil {
		return
	}
	remove(spec, "volumes")
	for _, kind := range []string{"containers", "initContainers"} {
		for _, c := range items(spec, kind) {
			if container, _ := c.(map[string]any); container != nil {
				remove(container, "volumeMounts")
			}
		}
	}
}

// bothTimes reports whether two values are times, or the fields that a server sets to them.
func bothTimes(a, b any) bool {
	for _, value := range []any{a, b} {
		text, _ := value.(string)
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			return false
		}
	}
	return true
}
