package apply

import (
	"fmt"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sqube/sqube/test/concepts/kit"
)

// withoutReplicas returns the Deployment without its replicas, and replicasOnly only its replicas.
func withoutReplicas(name string) map[string]any {
	object := kit.Deployment(name)
	unstructured.RemoveNestedField(object, "spec", "replicas")
	return object
}

func replicasOnly(name string, n int) map[string]any {
	return kit.Manifest("{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s}, spec: {replicas: %d}}", name, n)
}

// handovers are the ways to transfer the ownership of a field: "Transferring Ownership".
var handovers = []kit.Promise{
	{Statement: "a user who drops a field before its new owner has written it gets the default", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("apps/v1", "deployments", "a")
		c.Apply(t, path, "user", kit.Deployment("a")).Created(t)
		kit.Equal(t, c.Apply(t, path, "user", withoutReplicas("a")).OK(t).Value(t, "spec", "replicas"), 1.0)
	}},
	{Statement: "a user may keep a field until a conflict shows that its new owner has written it, and drop it then", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("apps/v1", "deployments", "a")
		c.Apply(t, path, "user", kit.Deployment("a")).Created(t)
		c.Apply(t, path, "user", kit.Deployment("a")).OK(t)
		c.Patch(t, kit.MergePatch, path+"/scale?fieldManager=hpa", `{"spec":{"replicas":5}}`).OK(t)
		conflicts(t, c.Apply(t, path, "user", kit.Deployment("a")),
			`conflict with "hpa" with subresource "scale" using apps/v1: .spec.replicas`)
		kit.Equal(t, c.Apply(t, path, "user", withoutReplicas("a")).OK(t).Value(t, "spec", "replicas"), 5.0)
	}},
	{Statement: "a temporary manager holds a field for its new owner, and disappears once that has written it", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("apps/v1", "deployments", "a")
		c.Apply(t, path, "user", kit.Deployment("a")).Created(t)
		c.Apply(t, path, "handover-to-hpa", replicasOnly("a", 3)).OK(t)
		a := c.Apply(t, path, "user", withoutReplicas("a")).OK(t)
		kit.Equal(t, a.Value(t, "spec", "replicas"), 3.0)
		kit.Equal(t, owned(t, a, "handover-to-hpa Apply"), []string{".spec.replicas"})
		c.Patch(t, kit.MergePatch, path+"/scale?fieldManager=hpa", `{"spec":{"replicas":5}}`).OK(t)
		a = c.Get(t, path)
		kit.Equal(t, managersOf(t, a), []string{"hpa", "user"})
		conflicts(t, c.Apply(t, path, "handover-to-hpa", replicasOnly("a", 3)),
			`conflict with "hpa" with subresource "scale" using apps/v1: .spec.replicas`)
	}},
	{Statement: "users transfer a field by sharing it first", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Apply(t, path, "one", data("a: '1'")).Created(t)
		c.Apply(t, path, "two", data("a: '1'")).OK(t)
		a := c.Apply(t, path, "one", data("b: '1'")).OK(t)
		kit.Equal(t, a.Value(t, "data"), map[string]any{"a": "1", "b": "1"})
		kit.Equal(t, c.Apply(t, path, "two", data("a: '2'")).OK(t).Text(t, "data", "a"), "2")
	}},
}

var managers = []kit.Promise{
	{Statement: "the manager of a write without one is the user agent's first word", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		agent := kit.Header{"User-Agent", "my-controller/v1.2 (linux/amd64) kubernetes/abc", "Content-Type", "application/json"}
		a := c.Send(t, http.MethodPost, c.Path("v1", "configmaps"), agent, kit.ConfigMap("a", map[string]string{"a": "1"})).Created(t)
		kit.Equal(t, owned(t, a, "my-controller Update"), []string{".data.a"})
		a = c.Patch(t, kit.MergePatch, path, `{"data":{"b":"1"}}`).OK(t)
		kit.Equal(t, managersOf(t, a), []string{"Go-http-client", "my-controller"})
	}},
	{Statement: "any write except apply clears managed fields by an empty list, or one with an empty entry", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		// According to the documentation, an empty list keeps them; in kube-apiserver it does not.
		for _, list := range [][]any{{map[string]any{}}, {}} {
			merge := map[string]any{"metadata": map[string]any{"managedFields": list}}
			replace := []any{map[string]any{"op": "replace", "path": "/metadata/managedFields", "value": list}}
			whole := map[string]any{"metadata": map[string]any{"name": "a", "managedFields": list}, "data": map[string]any{"a": "1"}}
			for _, clear := range []func() kit.Answer{
				func() kit.Answer { return c.Patch(t, kit.MergePatch, path, merge) },
				func() kit.Answer { return c.Patch(t, kit.JSONPatch, path, replace) },
				func() kit.Answer { return c.Put(t, path, whole) },
			} {
				c.Apply(t, path, "one", data("a: '1'")).Want(t, http.StatusOK, http.StatusCreated)
				kit.Equal(t, clear().OK(t).Value(t, "metadata", "managedFields"), nil)
			}
		}
	}},
	{Statement: "a write without managed fields keeps them", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Apply(t, path, "one", data("a: '1'")).Created(t)
		for _, a := range []kit.Answer{
			c.Put(t, path, kit.ConfigMap("a", map[string]string{"a": "1"})),
			c.Patch(t, kit.MergePatch, path, `{"metadata":{"managedFields":null}}`),
			c.Patch(t, kit.JSONPatch, path, `[{"op":"remove","path":"/metadata/managedFields"}]`),
		} {
			kit.Equal(t, owned(t, a.OK(t), "one Apply"), []string{".data.a"})
		}
	}},
	{Statement: "cleared fields are tracked again from the next apply on", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Apply(t, path, "one", data("a: '1', b: '1'")).Created(t)
		// According to the documentation, this write owns what else it changes; in kube-apiserver it does not.
		a := c.Patch(t, kit.MergePatch, path+"?fieldManager=two", `{"metadata":{"managedFields":[{}]},"data":{"b":"2"}}`).OK(t)
		kit.Equal(t, managersOf(t, a), []string{})
		kit.Equal(t, managersOf(t, c.Patch(t, kit.MergePatch, path+"?fieldManager=two", `{"data":{"b":"3"}}`).OK(t)), []string{})
		a = c.Apply(t, path, "one", data("a: '1'")).OK(t)
		kit.Equal(t, managersOf(t, a), []string{"before-first-apply", "one"})
		a = c.Patch(t, kit.MergePatch, path+"?fieldManager=two", `{"data":{"b":"4"}}`).OK(t)
		kit.Equal(t, owned(t, a, "two Update"), []string{".data.b"})
	}},
	{Statement: "fields without a manager before the first apply belong to before-first-apply", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", map[string]string{"a": "1"})).Created(t)
		c.Patch(t, kit.MergePatch, path, `{"metadata":{"managedFields":[{}]}}`).OK(t)
		conflicts(t, c.Apply(t, path, "one", data("a: '2'")), `conflict with "before-first-apply" using v1: .data.a`)
		a := c.Apply(t, path, "one", data("b: '1'")).OK(t)
		kit.Equal(t, owned(t, a, "before-first-apply Update"), []string{".data.a"})
	}},
	{Statement: "beyond 10 managers that update, the oldest are merged into one, ancient-changes", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Apply(t, path, "applier", data("a: '1'")).Created(t)
		for i := range 12 {
			c.Patch(t, kit.MergePatch, path+fmt.Sprintf("?fieldManager=m%02d", i), fmt.Sprintf(`{"data":{"m%02d":"1"}}`, i)).OK(t)
		}
		a := c.Get(t, path)
		updaters := managersOf(t, a)
		if len(updaters) != 11 || updaters[0] != "ancient-changes" || updaters[1] != "applier" {
			t.Errorf("the managers are %v", updaters)
		}
		kit.Equal(t, len(owned(t, a, "ancient-changes Update")), 3)
	}},
	{Statement: "one manager may apply in several versions of a kind, and its fields are those of the last", Proof: func(t *testing.T, c *kit.Cluster) {
		v1, v2 := c.Path("autoscaling/v1", "horizontalpodautoscalers", "h"), c.Path("autoscaling/v2", "horizontalpodautoscalers", "h")
		old := kit.Manifest(`{apiVersion: autoscaling/v1, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {maxReplicas: 3,
			targetCPUUtilizationPercentage: 50, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}}`)
		created := c.Apply(t, v1, "one", old).Created(t)
		if fields := owned(t, created, "one Apply"); len(fields) == 0 || fields[0] != ".spec.maxReplicas" {
			t.Errorf("it owns %v", fields)
		}
		// Another manager's conflicts are reported in the version that it applies.
		other := kit.Manifest(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {maxReplicas: 4}}`)
		conflicts(t, c.Apply(t, v2, "two", other), `conflict with "one": .spec.maxReplicas`)
		fresh := kit.Manifest(`{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: h}, spec: {maxReplicas: 3,
			metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}],
			scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}}`)
		a := c.Apply(t, v2, "one", fresh).OK(t)
		entries := a.Value(t, "metadata", "managedFields").([]any)
		kit.Equal(t, len(entries), 1)
		kit.Equal(t, entries[0].(map[string]any)["apiVersion"], "autoscaling/v2")
		kit.Equal(t, c.Get(t, v1).OK(t).Value(t, "spec", "targetCPUUtilizationPercentage"), 60.0)
		// A field that the new version's apply omits is removed, although it was applied in the old version.
		unstructured.RemoveNestedField(fresh, "spec", "metrics")
		a = c.Apply(t, v2, "one", kit.With(fresh, 2, "spec", "minReplicas")).OK(t)
		kit.Equal(t, a.Value(t, "spec", "minReplicas"), 2.0)
		c.Apply(t, v2, "one", old).BadRequest(t, "invalid object type: autoscaling/v1, Kind=HorizontalPodAutoscaler")
	}},
}

var applySubresources = []kit.Promise{
	{Statement: "the fields of the status are managed separately, under its subresource", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.StructuralSchema)
		for path, object := range map[string]map[string]any{
			c.Path("apps/v1", "deployments", "a"): kit.Deployment("a"),
			c.Path(groupVersion, "widgets", "a"):  kit.With(kit.Widget(groupVersion, "a"), 3, "spec", "replicas"),
		} {
			c.Apply(t, path, "one", object).Created(t)
			status := kit.Manifest("{apiVersion: %s, kind: %s, metadata: {name: a}, status: {replicas: 4}, spec: {replicas: 9}}", object["apiVersion"], object["kind"])
			a := c.Apply(t, path+"/status", "one", status).OK(t)
			kit.Equal(t, owned(t, a, "one Apply status"), []string{".status.replicas"})
			kit.Equal(t, a.Value(t, "spec", "replicas"), 3.0)
			// In an apply of the object the status is ignored, and not owned.
			a = c.Apply(t, path, "two", kit.With(kit.With(status, 3, "spec", "replicas"), 8, "status", "replicas")).OK(t)
			kit.Equal(t, owned(t, a, "two Apply"), []string{".spec.replicas"})
			kit.Equal(t, a.Value(t, "status", "replicas"), 4.0)
			c.Apply(t, path+"/status", "two", kit.With(status, 5, "status", "replicas")).Conflict(t,
				`conflict with "one" with subresource "status": .status.replicas`)
			a = c.Patch(t, kit.MergePatch, path+"/status?fieldManager=three", `{"status":{"replicas":6}}`).OK(t)
			kit.Equal(t, owned(t, a, "three Update status"), []string{".status.replicas"})
			kit.Equal(t, owned(t, a, "one Apply status"), []string{})
		}
		c.Apply(t, c.Path("apps/v1", "deployments", "none", "status"), "one", replicasOnly("none", 1)).NotFound(t)
	}},
	{Statement: "writing the scale takes ownership of the replicas, which conflict between the scale and the object", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("apps/v1", "deployments", "a")
		c.Apply(t, path, "one", kit.Deployment("a")).Created(t)
		scale := kit.Manifest("{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: a}, spec: {replicas: 5}}")
		conflicts(t, c.Apply(t, path+"/scale", "scaler", scale), `conflict with "one": .spec.replicas`)
		c.Apply(t, path+"/scale", "scaler&force=true", scale).OK(t)
		a := c.Get(t, path)
		kit.Equal(t, a.Value(t, "spec", "replicas"), 5.0)
		kit.Equal(t, owned(t, a, "scaler Apply scale"), []string{".spec.replicas"})
		conflicts(t, c.Apply(t, path, "one", kit.Deployment("a")), `conflict with "scaler" with subresource "scale": .spec.replicas`)
		c.Apply(t, path, "one&force=true", kit.Deployment("a")).OK(t)
		kit.Equal(t, managersOf(t, c.Get(t, path)), []string{"one"})
	}},
}
