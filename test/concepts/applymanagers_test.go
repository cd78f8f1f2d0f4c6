package concepts

import (
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// withoutReplicas is the deployment without its replicas, and replicasOnly nothing but them.
func withoutReplicas(name string) map[string]any {
	object := deployment(name)
	unstructured.RemoveNestedField(object, "spec", "replicas")
	return object
}

func replicasOnly(name string, n int) map[string]any {
	return manifest("{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s}, spec: {replicas: %d}}", name, n)
}

// handovers are the ways to pass the ownership of a field on: "Transferring Ownership".
var handovers = []promise{
	{"a user who drops a field before its new owner has written it gets the default", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.apply(t, path, "user", deployment("a")).created(t)
		equal(t, c.apply(t, path, "user", withoutReplicas("a")).ok(t).value(t, "spec", "replicas"), 1.0)
	}},
	{"a user may leave a field until a conflict tells that its new owner has written it, and drop it then", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.apply(t, path, "user", deployment("a")).created(t)
		c.apply(t, path, "user", deployment("a")).ok(t)
		c.patch(t, mergePatch, path+"/scale?fieldManager=hpa", `{"spec":{"replicas":5}}`).ok(t)
		conflicts(t, c.apply(t, path, "user", deployment("a")),
			`conflict with "hpa" with subresource "scale" using apps/v1: .spec.replicas`)
		equal(t, c.apply(t, path, "user", withoutReplicas("a")).ok(t).value(t, "spec", "replicas"), 5.0)
	}},
	{"a temporary manager holds a field for its new owner, and is gone once that has written it", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.apply(t, path, "user", deployment("a")).created(t)
		c.apply(t, path, "handover-to-hpa", replicasOnly("a", 3)).ok(t)
		a := c.apply(t, path, "user", withoutReplicas("a")).ok(t)
		equal(t, a.value(t, "spec", "replicas"), 3.0)
		equal(t, owned(t, a, "handover-to-hpa Apply"), []string{".spec.replicas"})
		c.patch(t, mergePatch, path+"/scale?fieldManager=hpa", `{"spec":{"replicas":5}}`).ok(t)
		a = c.get(t, path)
		equal(t, managersOf(t, a), []string{"hpa", "user"})
		conflicts(t, c.apply(t, path, "handover-to-hpa", replicasOnly("a", 3)),
			`conflict with "hpa" with subresource "scale" using apps/v1: .spec.replicas`)
	}},
	{"users pass a field on by sharing it first", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.apply(t, path, "one", data("a: '1'")).created(t)
		c.apply(t, path, "two", data("a: '1'")).ok(t)
		a := c.apply(t, path, "one", data("b: '1'")).ok(t)
		equal(t, a.value(t, "data"), map[string]any{"a": "1", "b": "1"})
		equal(t, c.apply(t, path, "two", data("a: '2'")).ok(t).text(t, "data", "a"), "2")
	}},
}

var managers = []promise{
	{"the manager of a write that names none is the user agent's first word", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		agent := header{"User-Agent", "my-controller/v1.2 (linux/amd64) kubernetes/abc", "Content-Type", "application/json"}
		a := c.send(t, http.MethodPost, c.path("v1", "configmaps"), agent, configMap("a", map[string]string{"a": "1"})).created(t)
		equal(t, owned(t, a, "my-controller Update"), []string{".data.a"})
		a = c.patch(t, mergePatch, path, `{"data":{"b":"1"}}`).ok(t)
		equal(t, managersOf(t, a), []string{"Go-http-client", "my-controller"})
	}},
	{"managed fields are cleared by a list that is empty or has one empty entry, in any other write", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		// The documents say that an empty list leaves them; with kube-apiserver it does not.
		for _, list := range [][]any{{map[string]any{}}, {}} {
			merge := map[string]any{"metadata": map[string]any{"managedFields": list}}
			replace := []any{map[string]any{"op": "replace", "path": "/metadata/managedFields", "value": list}}
			whole := map[string]any{"metadata": map[string]any{"name": "a", "managedFields": list}, "data": map[string]any{"a": "1"}}
			for _, clear := range []func() answer{
				func() answer { return c.patch(t, mergePatch, path, merge) },
				func() answer { return c.patch(t, jsonPatch, path, replace) },
				func() answer { return c.put(t, path, whole) },
			} {
				c.apply(t, path, "one", data("a: '1'")).want(t, http.StatusOK, http.StatusCreated)
				equal(t, clear().ok(t).value(t, "metadata", "managedFields"), nil)
			}
		}
	}},
	{"a write that has no managed fields leaves them", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.apply(t, path, "one", data("a: '1'")).created(t)
		for _, a := range []answer{
			c.put(t, path, configMap("a", map[string]string{"a": "1"})),
			c.patch(t, mergePatch, path, `{"metadata":{"managedFields":null}}`),
			c.patch(t, jsonPatch, path, `[{"op":"remove","path":"/metadata/managedFields"}]`),
		} {
			equal(t, owned(t, a.ok(t), "one Apply"), []string{".data.a"})
		}
	}},
	{"what is cleared is tracked again from the next apply on", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.apply(t, path, "one", data("a: '1', b: '1'")).created(t)
		// The documents say that this write comes to own what else it changes; with kube-apiserver nobody does.
		a := c.patch(t, mergePatch, path+"?fieldManager=two", `{"metadata":{"managedFields":[{}]},"data":{"b":"2"}}`).ok(t)
		equal(t, managersOf(t, a), []string{})
		equal(t, managersOf(t, c.patch(t, mergePatch, path+"?fieldManager=two", `{"data":{"b":"3"}}`).ok(t)), []string{})
		a = c.apply(t, path, "one", data("a: '1'")).ok(t)
		equal(t, managersOf(t, a), []string{"before-first-apply", "one"})
		a = c.patch(t, mergePatch, path+"?fieldManager=two", `{"data":{"b":"4"}}`).ok(t)
		equal(t, owned(t, a, "two Update"), []string{".data.b"})
	}},
	{"what was there before the first apply, and is managed by nobody, belongs to before-first-apply", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.post(t, c.path("v1", "configmaps"), configMap("a", map[string]string{"a": "1"})).created(t)
		c.patch(t, mergePatch, path, `{"metadata":{"managedFields":[{}]}}`).ok(t)
		conflicts(t, c.apply(t, path, "one", data("a: '2'")), `conflict with "before-first-apply" using v1: .data.a`)
		a := c.apply(t, path, "one", data("b: '1'")).ok(t)
		equal(t, owned(t, a, "before-first-apply Update"), []string{".data.a"})
	}},
	{"of more than 10 managers that update, the oldest are counted as one, ancient-changes", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.apply(t, path, "applier", data("a: '1'")).created(t)
		for i := range 12 {
			c.patch(t, mergePatch, path+fmt.Sprintf("?fieldManager=m%02d", i), fmt.Sprintf(`{"data":{"m%02d":"1"}}`, i)).ok(t)
		}
		a := c.get(t, path)
		updaters := managersOf(t, a)
		if len(updaters) != 11 || updaters[0] != "ancient-changes" || updaters[1] != "applier" {
			t.Errorf("the managers are %v", updaters)
		}
		equal(t, len(owned(t, a, "ancient-changes Update")), 3)
	}},
	{"one manager may apply in several versions of a kind, and its fields are those of the last", func(t *testing.T, c *cluster) {
		v1, v2 := c.path("autoscaling/v1", "horizontalpodautoscalers", "h"), c.path("autoscaling/v2", "horizontalpodautoscalers", "h")
		old := manifest(`{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {maxReplicas: 3,
			targetCPUUtilizationPercentage: 50, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}}`)
		created := c.apply(t, v1, "one", old).created(t)
		if fields := owned(t, created, "one Apply"); len(fields) == 0 || fields[0] != ".spec.maxReplicas" {
			t.Errorf("it owns %v", fields)
		}
		// Another manager's conflicts are told in the version that it applies.
		other := manifest(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {maxReplicas: 4}}`)
		conflicts(t, c.apply(t, v2, "two", other), `conflict with "one": .spec.maxReplicas`)
		fresh := manifest(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {maxReplicas: 3,
			metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}],
			scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}}`)
		a := c.apply(t, v2, "one", fresh).ok(t)
		entries := a.value(t, "metadata", "managedFields").([]any)
		equal(t, len(entries), 1)
		equal(t, entries[0].(map[string]any)["apiVersion"], "autoscaling/v2")
		equal(t, c.get(t, v1).ok(t).value(t, "spec", "targetCPUUtilizationPercentage"), 60.0)
		// A field that the new version's apply leaves out is removed, though it was applied in the old one.
		unstructured.RemoveNestedField(fresh, "spec", "metrics")
		a = c.apply(t, v2, "one", with(fresh, 2, "spec", "minReplicas")).ok(t)
		equal(t, a.value(t, "spec", "minReplicas"), 2.0)
		c.apply(t, v2, "one", old).badRequest(t, "invalid object type: autoscaling/v1, Kind=HorizontalPodAutoscaler")
	}},
}

var applySubresources = []promise{
	{"the fields of the status are managed apart, under its subresource", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, structural)
		for path, object := range map[string]map[string]any{
			c.path("apps/v1", "deployments", "a"): deployment("a"),
			c.path(groupVersion, "widgets", "a"):  with(widget(groupVersion, "a"), 3, "spec", "replicas"),
		} {
			c.apply(t, path, "one", object).created(t)
			status := manifest("{apiVersion: %s, kind: %s, metadata: {name: a}, status: {replicas: 4}, spec: {replicas: 9}}", object["apiVersion"], object["kind"])
			a := c.apply(t, path+"/status", "one", status).ok(t)
			equal(t, owned(t, a, "one Apply status"), []string{".status.replicas"})
			equal(t, a.value(t, "spec", "replicas"), 3.0)
			// In an apply of the object the status is ignored, and not owned.
			a = c.apply(t, path, "two", with(with(status, 3, "spec", "replicas"), 8, "status", "replicas")).ok(t)
			equal(t, owned(t, a, "two Apply"), []string{".spec.replicas"})
			equal(t, a.value(t, "status", "replicas"), 4.0)
			c.apply(t, path+"/status", "two", with(status, 5, "status", "replicas")).conflict(t,
				`conflict with "one" with subresource "status": .status.replicas`)
			a = c.patch(t, mergePatch, path+"/status?fieldManager=three", `{"status":{"replicas":6}}`).ok(t)
			equal(t, owned(t, a, "three Update status"), []string{".status.replicas"})
			equal(t, owned(t, a, "one Apply status"), []string{})
		}
		c.apply(t, c.path("apps/v1", "deployments", "none", "status"), "one", replicasOnly("none", 1)).notFound(t)
	}},
	{"who writes the scale owns the replicas, which conflict between the scale and the object", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.apply(t, path, "one", deployment("a")).created(t)
		scale := manifest("{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: a}, spec: {replicas: 5}}")
		conflicts(t, c.apply(t, path+"/scale", "scaler", scale), `conflict with "one": .spec.replicas`)
		c.apply(t, path+"/scale", "scaler&force=true", scale).ok(t)
		a := c.get(t, path)
		equal(t, a.value(t, "spec", "replicas"), 5.0)
		equal(t, owned(t, a, "scaler Apply scale"), []string{".spec.replicas"})
		conflicts(t, c.apply(t, path, "one", deployment("a")), `conflict with "scaler" with subresource "scale": .spec.replicas`)
		c.apply(t, path, "one&force=true", deployment("a")).ok(t)
		equal(t, managersOf(t, c.get(t, path)), []string{"one"})
	}},
}
