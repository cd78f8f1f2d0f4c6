package transactions

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json" // keeps all digits of integers
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// wrong are the reasons for which a container that waits is no longer expected to start.
var wrong = []string{
	"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError", "RunContainerError",
}

// between are the resources, by the kind of the owner, whose objects stand between it and its Pods.
var between = map[string]Target{"Deployment": {APIVersion: "apps/v1", Kind: "ReplicaSet"}, "CronJob": {APIVersion: "batch/v1", Kind: "Job"}}

// checkup looks at what a transaction has written, as the server.
type checkup struct {
	rest      *REST
	transport http.RoundTripper
}

// unhealthy returns why what a transaction has written is not at rest and healthy, "" if it is.
func (t *Taker) unhealthy(ctx context.Context, l *loaded) (problem string, err error) {
	transport, err := clientrest.TransportFor(t.Server)
	if err != nil {
		return "", err
	}
	c := &checkup{t.REST, transport}
	owners := map[string][]*unstructured.Unstructured{} // by namespace
	for i := range l.Status.Operations {
		r := &l.Status.Operations[i]
		o, err := c.get(ctx, &Target{r.APIVersion, r.Kind, r.Namespace, r.Name}, "/"+url.PathEscape(r.Name))
		if err != nil || o == nil {
			if err != nil {
				return "", err
			}
			continue // others have deleted it since, or the transaction has
		}
		if problem := problemOf(o); problem != "" {
			return fmt.Sprintf("%s %s: %s", r.Kind, nameOf(o), problem), nil
		}
		if r.Namespace != "" {
			owners[r.Namespace] = append(owners[r.Namespace], o)
		}
	}
	for namespace, all := range owners {
		if problem, err := c.pods(ctx, namespace, all); problem != "" || err != nil {
			return problem, err
		}
	}
	return "", nil
}

func nameOf(o *unstructured.Unstructured) string { return cache.MetaObjectToName(o).String() }

// get returns an object, or a list if below is "", nil if there is none.
func (c *checkup) get(ctx context.Context, t *Target, below string) (*unstructured.Unstructured, error) {
	path, invalid := (&paths{Served: c.rest.Served}).path(t, field.NewPath("kind"))
	if invalid != nil {
		return nil, nil // its definition was deleted, and so was the object
	}
	body, _, err := (&call{method: http.MethodGet, path: path + below}).send(ctx, c.transport)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	o := &unstructured.Unstructured{}
	if err == nil {
		err = json.Unmarshal(body, &o.Object)
	}
	return o, err
}

// ownedBy returns the objects of a kind in a namespace whose owner has one of the uids.
func (c *checkup) ownedBy(ctx context.Context, t Target, uids map[string]bool) (owned []*unstructured.Unstructured, err error) {
	list, err := c.get(ctx, &t, "")
	if err != nil || list == nil {
		return nil, err
	}
	items, _, _ := unstructured.NestedSlice(list.Object, "items")
	for _, item := range items {
		fields, _ := item.(map[string]any)
		o := &unstructured.Unstructured{Object: fields}
		if slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return uids[string(r.UID)] }) {
			owned = append(owned, o)
		}
	}
	return owned, nil
}

// pods returns what is wrong with a Pod that one of the objects owns, directly or not.
func (c *checkup) pods(ctx context.Context, namespace string, all []*unstructured.Unstructured) (problem string, err error) {
	uids, looked := map[string]bool{}, map[Target]bool{}
	for _, o := range all {
		uids[string(o.GetUID())] = true
	}
	for _, o := range all {
		kind, ok := between[o.GetKind()]
		kind.Namespace = namespace
		if !ok || looked[kind] {
			continue
		}
		looked[kind] = true
		owned, err := c.ownedBy(ctx, kind, uids)
		if err != nil {
			return "", err
		}
		for _, o := range owned {
			uids[string(o.GetUID())] = true
		}
	}
	pods, err := c.ownedBy(ctx, Target{APIVersion: "v1", Kind: "Pod", Namespace: namespace}, uids)
	for _, pod := range pods {
		if problem := waitsInVain(pod); problem != "" {
			return fmt.Sprintf("Pod %s: %s", nameOf(pod), problem), nil
		}
		controller := metav1.GetControllerOf(pod)
		if phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase"); phase == "Failed" && (controller == nil || controller.Kind != "Job") { // a Job tries again
			return fmt.Sprintf("Pod %s has failed", nameOf(pod)), nil
		}
	}
	return "", err
}

// waitsInVain returns why a container of a Pod does not start, "" if none is known not to.
func waitsInVain(pod *unstructured.Unstructured) string {
	for _, of := range []string{"initContainerStatuses", "containerStatuses"} {
		statuses, _, _ := unstructured.NestedSlice(pod.Object, "status", of)
		for _, s := range statuses {
			fields, _ := s.(map[string]any)
			if reason, _, _ := unstructured.NestedString(fields, "state", "waiting", "reason"); slices.Contains(wrong, reason) {
				return reason
			}
		}
	}
	return ""
}

// problemOf returns why an object is not at rest and healthy, "" if it is, or says nothing of that.
func problemOf(o *unstructured.Unstructured) string {
	number := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(o.Object, path...)
		return n
	}
	if observed, found, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); found && observed < o.GetGeneration() {
		return "its controller has not seen it yet"
	}
	want, set, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !set {
		want = 1
	}
	is := func(what string, got, want int64) string {
		if got >= want {
			return ""
		}
		return fmt.Sprintf("%d of %d %s", got, want, what)
	}
	problem := ""
	switch o.GroupVersionKind().GroupKind().String() {
	case "Deployment.apps":
		problem = is("replicas updated", number("status", "updatedReplicas"), want)
		if extra := number("status", "replicas") - want; problem == "" && extra > 0 {
			problem = fmt.Sprintf("%d former replicas are left", extra)
		}
		if problem == "" {
			problem = is("replicas available", number("status", "availableReplicas"), want)
		}
	case "StatefulSet.apps":
		partition, _, _ := unstructured.NestedInt64(o.Object, "spec", "updateStrategy", "rollingUpdate", "partition")
		if kind, _, _ := unstructured.NestedString(o.Object, "spec", "updateStrategy", "type"); kind != "OnDelete" {
			problem = is("replicas updated", number("status", "updatedReplicas"), want-partition)
		}
		if problem == "" {
			problem = is("replicas ready", number("status", "readyReplicas"), want)
		}
	case "DaemonSet.apps":
		desired := number("status", "desiredNumberScheduled")
		if kind, _, _ := unstructured.NestedString(o.Object, "spec", "updateStrategy", "type"); kind != "OnDelete" {
			problem = is("Pods updated", number("status", "updatedNumberScheduled"), desired)
		}
		if problem == "" {
			problem = is("Pods available", number("status", "numberAvailable"), desired)
		}
	case "ReplicaSet.apps", "ReplicationController":
		problem = is("replicas ready", number("status", "readyReplicas"), want)
	case "Pod":
		problem = waitsInVain(o)
	}
	if problem == "" && o.GetDeletionTimestamp() != nil {
		problem = "it is still being deleted"
	}
	if problem == "" {
		problem = badCondition(o)
	}
	return problem
}

// badCondition returns the condition that says that an object is not healthy, "" if none does.
func badCondition(o *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		fields, _ := c.(map[string]any)
		kind, _ := fields["type"].(string)
		status, _ := fields["status"].(string)
		reason, _ := fields["reason"].(string)
		good := slices.Contains([]string{"Ready", "Available", "Established", "Progressing"}, kind)
		bad := slices.Contains([]string{"Failed", "Stalled", "ReplicaFailure"}, kind)
		ended := o.GetKind() == "Pod" && reason == "PodCompleted"
		if !ended && (good && status == string(metav1.ConditionFalse) || bad && status == string(metav1.ConditionTrue)) {
			return fmt.Sprintf("its condition %s is %s: %s", kind, status, reason)
		}
	}
	if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase == "Failed" || phase == "Lost" {
		return "its phase is " + phase
	}
	return ""
}
