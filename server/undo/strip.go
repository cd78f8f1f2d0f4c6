package undo

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sqube/sqube/server/changes"
)

// lastApplied is an annotation in which kubectl apply repeats the object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// ours are annotations that controllers set to remember what they have done.
var ours = []string{
	"deployment.kubernetes.io/revision", "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller",
	"pv.kubernetes.io/provisioned-by", "volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-provisioner",
	"volume.beta.kubernetes.io/storage-provisioner", "endpoints.kubernetes.io/last-change-trigger-time",
}

// Strip returns what clients set of an object of a resource: all but its status, unless that is a plain field, and what the server and
// controllers keep in its metadata. It changes object.
func Strip(served changes.Served, resource schema.GroupResource, object map[string]any) map[string]any {
	if object == nil {
		return nil
	}
	version := (&unstructured.Unstructured{Object: object}).GroupVersionKind().Version
	return StripMetadata(object, served.HasPlainStatus(resource.WithVersion(version)))
}

// StripMetadata is Strip of an object whose status is a plain field, or remains as if it were.
func StripMetadata(object map[string]any, plainStatus bool) map[string]any {
	metadata := Unset(object, plainStatus)
	if finalizers, ok := metadata["finalizers"].([]any); ok {
		kept := slices.DeleteFunc(finalizers, func(f any) bool { return f == "foregroundDeletion" || f == "orphan" })
		if metadata["finalizers"] = kept; len(kept) == 0 {
			delete(metadata, "finalizers")
		}
	}
	if annotations, ok := metadata["annotations"].(map[string]any); ok {
		for _, name := range ours {
			delete(annotations, name)
		}
		if len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	return object
}

// Unset removes from an object what clients do not set, its status, unless that is a plain field, and a part of its metadata, and returns the
// rest of that.
func Unset(object map[string]any, plainStatus bool) (metadata map[string]any) {
	if !plainStatus {
		delete(object, "status")
	}
	metadata, _ = object["metadata"].(map[string]any)
	for _, name := range []string{"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
		delete(metadata, name)
	}
	return metadata
}

// made are the built-in kinds that a controller makes for an owner of another.
var made = map[string][]string{
	"Pod": {"ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController", "Node"}, "ReplicaSet": {"Deployment"}, "Job": {"CronJob"},
	"ControllerRevision": {"StatefulSet", "DaemonSet"}, "EndpointSlice": {"Service", "Endpoints"}, "IPAddress": {"Service"},
	"ResourceClaim": {"Pod"}, "PersistentVolumeClaim": {"Pod"},
}

// Remade returns why an object of a resource comes back by itself, "" if it does not.
func Remade(of schema.GroupResource, o *unstructured.Unstructured) string {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Controller != nil && *owner.Controller && slices.Contains(made[o.GetKind()], owner.Kind) && (of.Resource != "persistentvolumeclaims" || strings.HasPrefix(o.GetName(), owner.Name+"-")) {
			return owner.Kind + " " + owner.Name + " makes it"
		}
	}
	switch {
	case of.Group == "" && of.Resource == "serviceaccounts" && o.GetName() == "default":
		return "a controller makes it in every namespace"
	case of.Group == "" && of.Resource == "configmaps" && o.GetName() == "kube-root-ca.crt":
		return "a controller makes it in every namespace"
	case of.Group == "" && of.Resource == "endpoints":
		if o.GetAnnotations()["endpoints.kubernetes.io/last-change-trigger-time"] != "" || o.GetLabels()["endpoints.kubernetes.io/managed-by"] != "" {
			return "its Service's controller makes it"
		}
	case of.Resource == "endpointslices" && strings.HasPrefix(o.GetLabels()["endpointslice.kubernetes.io/managed-by"], "endpointslice"):
		return "its Service's controller makes it"
	case of.Group == "apiregistration.k8s.io" && o.GetLabels()["kube-aggregator.kubernetes.io/automanaged"] != "":
		return "the server makes it"
	}
	return ""
}

// finished returns why an object must not run again, "" if it may.
func finished(o *unstructured.Unstructured) string {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	if o.GetKind() == "Pod" && (phase == "Succeeded" || phase == "Failed") || o.GetKind() == "Job" && met(o, "Complete", "Failed") {
		return "it has ended, and would run again"
	}
	return ""
}

// fresh removes from an object that is created again what binds it to its former self. It returns what the user has to know.
func fresh(k key, o *unstructured.Unstructured) (warnings []string) {
	switch {
	case k.of(namespaces):
		unstructured.RemoveNestedField(o.Object, "spec", "finalizers")
	case k.group == "" && k.resource == "pods":
		unstructured.RemoveNestedField(o.Object, "spec", "nodeName")
		computed(o, "priority", "preemptionPolicy", "overhead")
		if debuggers, _, _ := unstructured.NestedSlice(o.Object, "spec", "ephemeralContainers"); len(debuggers) > 0 {
			unstructured.RemoveNestedField(o.Object, "spec", "ephemeralContainers")
			return []string{"it comes back without its ephemeral containers, which can only be added to a Pod that runs"}
		}
	case k.group == "scheduling.k8s.io" && k.resource == "podgroups":
		computed(o, "priority", "preemptionPolicy")
	case k.group == "" && k.resource == "serviceaccounts":
		delete(o.Object, "secrets")
	case k.group == "" && k.resource == "persistentvolumes":
		unstructured.RemoveNestedField(o.Object, "spec", "claimRef", "uid")
		unstructured.RemoveNestedField(o.Object, "spec", "claimRef", "resourceVersion")
		return []string{"the volume that it stands for may be gone"}
	case k.group == "" && k.resource == "services":
		if kind, _, _ := unstructured.NestedString(o.Object, "spec", "type"); kind == "LoadBalancer" {
			return []string{"its load balancer is made anew and may get another address"}
		}
	case k.group == "batch" && k.resource == "jobs":
		if manual, _, _ := unstructured.NestedBool(o.Object, "spec", "manualSelector"); !manual {
			unstructured.RemoveNestedField(o.Object, "spec", "selector")
			for _, path := range [][]string{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}} {
				for _, label := range []string{"controller-uid", "batch.kubernetes.io/controller-uid"} {
					unstructured.RemoveNestedField(o.Object, slices.Concat(path, []string{label})...)
				}
			}
		}
		return []string{"it starts from the beginning"}
	}
	return nil
}

// computed removes what admission computes from classes, and refuses if these have changed since.
func computed(o *unstructured.Unstructured, fields ...string) {
	for _, name := range fields {
		unstructured.RemoveNestedField(o.Object, "spec", name)
	}
}

// withoutAllocations removes the fields that a Service can do without, if another has got their values. It returns which it had.
func withoutAllocations(o *unstructured.Unstructured) (dropped []string) {
	for _, name := range []string{"clusterIP", "clusterIPs", "healthCheckNodePort"} {
		value, found, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", name)
		if found && value != "None" {
			unstructured.RemoveNestedField(o.Object, "spec", name)
			dropped = append(dropped, "spec."+name)
		}
	}
	ports, _, _ := unstructured.NestedSlice(o.Object, "spec", "ports")
	for _, port := range ports {
		if port, ok := port.(map[string]any); ok && port["nodePort"] != nil {
			delete(port, "nodePort")
			dropped = append(dropped, "spec.ports.nodePort")
		}
	}
	if len(ports) > 0 {
		_ = unstructured.SetNestedSlice(o.Object, ports, "spec", "ports")
	}
	return slices.Compact(dropped)
}
