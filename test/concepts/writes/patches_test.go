package writes

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// unprocessable is kube-apiserver's message for a JSON patch that can't be applied.
const unprocessable = "the server rejected our request due to an error in our request"

// patchable creates the ConfigMap that most patches change, and returns its path.
func patchable(t *testing.T, c *kit.Cluster) string {
	t.Helper()
	object := kit.With(kit.ConfigMap("a", map[string]string{"a": "1", "b": "2"}), map[string]any{"x": "1", "y": "2"}, "metadata", "labels")
	c.Post(t, c.Path("v1", "configmaps"), object).Created(t)
	return c.Path("v1", "configmaps", "a")
}

var jsonPatches = []kit.Promise{
	{Statement: "a JSON patch adds, replaces, copies, moves, removes and tests, in sequence", Proof: func(t *testing.T, c *kit.Cluster) {
		path := patchable(t, c)
		a := c.Patch(t, kit.JSONPatch, path, `[{"op":"test","path":"/data/a","value":"1"},{"op":"add","path":"/data/c","value":"3"},
			{"op":"replace","path":"/data/a","value":"4"},{"op":"copy","from":"/data/a","path":"/data/d"},
			{"op":"move","from":"/data/b","path":"/data/e"},{"op":"remove","path":"/data/c"},
			{"op":"add","path":"/metadata/annotations","value":{"example.com/a":"1"}},
			{"op":"replace","path":"/metadata/annotations/example.com~1a","value":"2"}]`).OK(t)
		kit.Equal(t, a.Value(t, "data"), map[string]any{"a": "4", "d": "4", "e": "2"})
		kit.Equal(t, a.Value(t, "metadata", "annotations"), map[string]any{"example.com/a": "2"})
	}},
	{Statement: "a JSON patch can change arrays", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("apps/v1", "deployments", "a")
		c.Post(t, kit.CollectionOf(path), kit.Deployment("a")).Created(t)
		a := c.Patch(t, kit.JSONPatch, path, `[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"last","image":"i"}},
			{"op":"add","path":"/spec/template/spec/containers/0","value":{"name":"first","image":"i"}},
			{"op":"replace","path":"/spec/template/spec/containers/1/image","value":"j"}]`).OK(t)
		kit.Equal(t, containers(t, a), []string{"first i", "c j", "last i"})
		c.Patch(t, kit.JSONPatch, path, `[{"op":"add","path":"/spec/template/spec/containers/9","value":{"name":"x","image":"i"}}]`).
			Invalid(t, unprocessable)
	}},
	{Statement: "a JSON patch is applied as a whole, or not at all if a test fails or a path does not exist", Proof: func(t *testing.T, c *kit.Cluster) {
		path := patchable(t, c)
		before := c.Get(t, path).Object(t)
		for _, operation := range []string{
			`{"op":"test","path":"/data/a","value":"9"}`,
			`{"op":"test","path":"/data/a","value":null}`,
			`{"op":"remove","path":"/data/z"}`,
			`{"op":"add","path":"/nothing/z","value":"1"}`,
			`{"op":"move","from":"/data/z","path":"/data/y"}`,
			`{"op":"double","path":"/data/a"}`,
			`{"path":"/data/a"}`,
			`{"op":"add","value":"1"}`,
			`{"op":"add","path":"data","value":"1"}`,
		} {
			a := c.Patch(t, kit.JSONPatch, path, `[{"op":"add","path":"/data/new","value":"1"},`+operation+`]`)
			a.Invalid(t, unprocessable)
		}
		kit.Equal(t, c.Get(t, path).Object(t), before)
	}},
	{Statement: "the operation test makes a patch conditional on the current value, so an increment needs no read", Proof: func(t *testing.T, c *kit.Cluster) {
		path := patchable(t, c)
		increment := func(from, to int) kit.Answer {
			return c.Patch(t, kit.JSONPatch, path,
				fmt.Sprintf(`[{"op":"test","path":"/data/a","value":"%d"},{"op":"replace","path":"/data/a","value":"%d"}]`, from, to))
		}
		increment(1, 2).OK(t)
		c.Patch(t, kit.MergePatch, path, `{"data":{"other":"1"}}`).OK(t)
		increment(1, 2).Invalid(t)
		increment(2, 3).OK(t)
	}},
	{Statement: "a JSON patch has at most 10,000 operations, and copies a limited number of bytes", Proof: func(t *testing.T, c *kit.Cluster) {
		path := patchable(t, c)
		operation := `,{"op":"test","path":"/data/a","value":"1"}`
		patch := func(n int) kit.Answer {
			return c.Patch(t, kit.JSONPatch, path, "["+strings.Repeat(operation, n)[1:]+"]")
		}
		patch(10_000).OK(t)
		patch(10_001).Refused(t, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge",
			"Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001")
		var copies strings.Builder
		for i := range 40 {
			fmt.Fprintf(&copies, `,{"op":"copy","from":"/data/big","path":"/data/big%d"}`, i)
		}
		bomb := fmt.Sprintf(`[{"op":"add","path":"/data/big","value":"%s"}%s]`, strings.Repeat("x", 100_000), copies.String())
		c.Patch(t, kit.JSONPatch, path, bomb).Invalid(t, unprocessable)
	}},
	{Statement: "a JSON patch whose result is another object, or not an object, is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
		path := patchable(t, c)
		for operation, code := range map[string]int{
			`{"op":"replace","path":"/metadata/name","value":"b"}`:            http.StatusBadRequest,
			`{"op":"replace","path":"/metadata/namespace","value":"default"}`: http.StatusBadRequest,
			`{"op":"replace","path":"","value":{}}`:                           http.StatusBadRequest,
			`{"op":"replace","path":"/kind","value":"Secret"}`:                http.StatusUnprocessableEntity,
			`{"op":"replace","path":"/apiVersion","value":"v2"}`:              http.StatusUnprocessableEntity,
			`{"op":"replace","path":"/metadata/uid","value":"other"}`:         http.StatusUnprocessableEntity,
			`{"op":"replace","path":"/data/a","value":1}`:                     http.StatusUnprocessableEntity,
			`{"op":"replace","path":"/data","value":["a"]}`:                   http.StatusUnprocessableEntity,
		} {
			c.Patch(t, kit.JSONPatch, path, "["+operation+"]").Want(t, code)
		}
	}},
}

// containers returns the names and images of a Deployment's containers.
func containers(t testing.TB, a kit.Answer) []string {
	t.Helper()
	var found []string
	list, _ := a.Value(t, "spec", "template", "spec", "containers").([]any)
	for _, item := range list {
		container := item.(map[string]any)
		found = append(found, fmt.Sprint(container["name"], " ", container["image"]))
	}
	return found
}

var mergePatches = []kit.Promise{
	{Statement: "a merge patch sets its fields, deletes null ones, and replaces arrays as a whole", Proof: func(t *testing.T, c *kit.Cluster) {
		path := patchable(t, c)
		a := c.Patch(t, kit.MergePatch, path, `{"metadata":{"labels":{"x":null}},"data":{"b":null,"c":"3","none":null}}`).OK(t)
		kit.Equal(t, a.Value(t, "data"), map[string]any{"a": "1", "c": "3"})
		kit.Equal(t, a.Value(t, "metadata", "labels"), map[string]any{"y": "2"})
		kit.Equal(t, c.Patch(t, kit.MergePatch, path, `{"data":null}`).OK(t).Value(t, "data"), nil)
		path = c.Path("apps/v1", "deployments", "a")
		c.Post(t, kit.CollectionOf(path), kit.Deployment("a")).Created(t)
		a = c.Patch(t, kit.MergePatch, path, `{"spec":{"template":{"spec":{"containers":[{"name":"z","image":"j"}]}}}}`).OK(t)
		kit.Equal(t, containers(t, a), []string{"z j"})
	}},
	{Statement: "a patch of any kind with a resourceVersion updates only that version, and is otherwise a conflict", Proof: func(t *testing.T, c *kit.Cluster) {
		path := patchable(t, c)
		old := c.Get(t, path).ResourceVersion(t)
		now := c.Patch(t, kit.MergePatch, path, `{"data":{"now":"1"}}`).OK(t).ResourceVersion(t)
		patches := func(version string) []kit.Answer {
			merged := map[string]any{"metadata": map[string]any{"resourceVersion": version}}
			operation := map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": version}
			return []kit.Answer{
				c.Patch(t, kit.MergePatch, path, merged), c.Patch(t, kit.StrategicPatch, path, merged), c.Patch(t, kit.JSONPatch, path, []any{operation}),
			}
		}
		for _, a := range patches(old) {
			a.Conflict(t, kit.ModifiedMessage)
		}
		for _, a := range patches(now) {
			a.OK(t)
		}
	}},
	{Statement: "a patch of any kind gets 404 for a missing object, and 405 for a collection", Proof: func(t *testing.T, c *kit.Cluster) {
		for kind, body := range map[string]string{kit.JSONPatch: "[]", kit.MergePatch: "{}", kit.StrategicPatch: "{}"} {
			c.Patch(t, kind, c.Path("v1", "configmaps", "none"), body).NotFound(t, `configmaps "none" not found`)
			c.Patch(t, kind, c.Path("v1", "configmaps"), body).Refused(t, http.StatusMethodNotAllowed, "MethodNotAllowed")
		}
	}},
	{Statement: "the kind of a patch is its Content-Type, without parameters; an unknown one gets 415", Proof: func(t *testing.T, c *kit.Cluster) {
		path := patchable(t, c)
		for _, kind := range []string{kit.MergePatch + "; charset=utf-8", kit.StrategicPatch + ";charset=UTF-8"} {
			c.Patch(t, kind, path, `{"data":{"a":"2"}}`).OK(t)
		}
		for _, kind := range []string{"application/json", "application/yaml", "text/plain", "application/merge-patch+yaml", "nothing", "application/*"} {
			c.Patch(t, kind, path, `{}`).Refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
		}
	}},
	{Statement: "subresources are patched like objects", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("apps/v1", "deployments", "a")
		c.Post(t, kit.CollectionOf(path), kit.Deployment("a")).Created(t)
		kit.Equal(t, c.Patch(t, kit.MergePatch, path+"/scale", `{"spec":{"replicas":4}}`).OK(t).Value(t, "spec", "replicas"), 4.0)
		kit.Equal(t, c.Patch(t, kit.JSONPatch, path+"/scale",
			`[{"op":"replace","path":"/spec/replicas","value":5}]`).OK(t).Value(t, "spec", "replicas"), 5.0)
		kit.Equal(t, c.Patch(t, kit.StrategicPatch, path+"/scale", `{"spec":{"replicas":6}}`).OK(t).Value(t, "spec", "replicas"), 6.0)
		kit.Equal(t, c.Get(t, path).Value(t, "spec", "replicas"), 6.0)
		c.Patch(t, kit.StrategicPatch, path+"/status", `{"status":{"conditions":[{"type":"A","status":"True"}]}}`).OK(t)
		a := c.Patch(t, kit.StrategicPatch, path+"/status", `{"status":{"conditions":[{"type":"B","status":"True"}]}}`).OK(t)
		if conditions := a.Value(t, "status", "conditions").([]any); len(conditions) != 2 {
			t.Errorf("the conditions are %v", conditions)
		}
		c.Patch(t, kit.MergePatch, path+"/none", `{}`).NotFound(t)
	}},
	{Statement: "custom resources accept JSON and merge patches, but no strategic ones", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.StructuralSchema)
		path := c.Path(groupVersion, "widgets", "a")
		c.Post(t, kit.CollectionOf(path), kit.With(kit.Widget(groupVersion, "a"), kit.Manifest("{list: [1, 2], a: 1}"), "spec", "free")).Created(t)
		a := c.Patch(t, kit.MergePatch, path, `{"spec":{"free":{"list":[3],"a":null,"b":1.5}}}`).OK(t)
		kit.Equal(t, a.Value(t, "spec", "free"), map[string]any{"list": []any{3.0}, "b": 1.5})
		a = c.Patch(t, kit.JSONPatch, path, `[{"op":"add","path":"/spec/free/list/0","value":"x"}]`).OK(t)
		kit.Equal(t, a.Value(t, "spec", "free", "list"), []any{"x", 3.0})
		c.Patch(t, kit.StrategicPatch, path, `{"spec":{"replicas":2}}`).Refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType",
			"the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml")
		c.Patch(t, kit.MergePatch, path, `{"spec":{"replicas":"many"}}`).Invalid(t, "spec.replicas")
		c.Patch(t, kit.MergePatch, path, `{"kind":"Gadget"}`).Want(t, http.StatusBadRequest, http.StatusUnprocessableEntity)
	}},
}

var strategicPatches = []kit.Promise{
	{Statement: "a strategic merge patch merges lists whose elements have a key, and adds new ones", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("apps/v1", "deployments", "a")
		c.Post(t, kit.CollectionOf(path), kit.Deployment("a")).Created(t)
		a := c.Patch(t, kit.StrategicPatch, path,
			`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"j"},{"name":"d","image":"k"}]}}}}`).OK(t)
		if got := containers(t, a); len(got) != 2 || !strings.Contains(fmt.Sprint(got),
			"c j") || !strings.Contains(fmt.Sprint(got), "d k") {
			t.Errorf("the containers are %v", got)
		}
		// Lists of other elements are replaced.
		c.Patch(t, kit.StrategicPatch, path, `{"spec":{"template":{"spec":{"containers":[{"name":"c","args":["a","b"]}]}}}}`).OK(t)
		a = c.Patch(t, kit.StrategicPatch, path, `{"spec":{"template":{"spec":{"containers":[{"name":"c","args":["c"]}]}}}}`).OK(t)
		for _, item := range a.Value(t, "spec", "template", "spec", "containers").([]any) {
			if container := item.(map[string]any); container["name"] == "c" {
				kit.Equal(t, container["args"], []any{"c"})
			}
		}
		// Finalizers are merged as a set.
		c.Patch(t, kit.StrategicPatch, path, `{"metadata":{"finalizers":["example.com/a"]}}`).OK(t)
		a = c.Patch(t, kit.StrategicPatch, path, `{"metadata":{"finalizers":["example.com/b"]}}`).OK(t)
		if got := a.Value(t, "metadata", "finalizers").([]any); len(got) != 2 {
			t.Errorf("the finalizers are %v", got)
		}
		a = c.Patch(t, kit.StrategicPatch, path, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/a"]}}`).OK(t)
		kit.Equal(t, a.Value(t, "metadata", "finalizers"), []any{"example.com/b"})
		c.SetFinalizers(t, path).OK(t)
	}},
	{Statement: "the directive $patch deletes an element or a map, or replaces a list or a map", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("apps/v1", "deployments", "a")
		c.Post(t, kit.CollectionOf(path), kit.With(kit.Deployment("a"), map[string]any{"x": "1", "y": "2"}, "metadata", "labels")).Created(t)
		c.Patch(t, kit.StrategicPatch, path, `{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"k"}]}}}}`).OK(t)
		a := c.Patch(t, kit.StrategicPatch, path, `{"spec":{"template":{"spec":{"containers":[{"$patch":"delete","name":"c"}]}}}}`).OK(t)
		kit.Equal(t, containers(t, a), []string{"d k"})
		a = c.Patch(t, kit.StrategicPatch, path,
			`{"spec":{"template":{"spec":{"containers":[{"$patch":"replace"},{"name":"e","image":"l"}]}}}}`).OK(t)
		kit.Equal(t, containers(t, a), []string{"e l"})
		a = c.Patch(t, kit.StrategicPatch, path, `{"metadata":{"labels":{"$patch":"replace","z":"3"}}}`).OK(t)
		kit.Equal(t, a.Value(t, "metadata", "labels"), map[string]any{"z": "3"})
		a = c.Patch(t, kit.StrategicPatch, path, `{"metadata":{"labels":{"$patch":"delete"}}}`).OK(t)
		kit.Equal(t, a.Value(t, "metadata", "labels"), nil)
	}},
	{Statement: "the directive $retainKeys drops the previous members of a union", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("apps/v1", "deployments", "a")
		c.Post(t, kit.CollectionOf(path), kit.Deployment("a")).Created(t)
		c.Patch(t, kit.StrategicPatch, path, `{"spec":{"strategy":{"type":"Recreate"}}}`).Invalid(t,
			"spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'")
		a := c.Patch(t, kit.StrategicPatch, path, `{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`).OK(t)
		kit.Equal(t, a.Value(t, "spec", "strategy"), map[string]any{"type": "Recreate"})
	}},
	{Statement: "the directive $setElementOrder sets the order of a list's elements", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("apps/v1", "deployments", "a")
		c.Post(t, kit.CollectionOf(path), kit.Deployment("a")).Created(t)
		for _, order := range [][]string{{"new", "c"}, {"c", "new"}} {
			a := c.Patch(t, kit.StrategicPatch, path, fmt.Sprintf(`{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":%q},{"name":%q}],
				"containers":[{"name":"new","image":"i"}]}}}}`, order[0], order[1])).OK(t)
			kit.Equal(t, containers(t, a), []string{order[0] + " i", order[1] + " i"})
		}
		// kube-apiserver returns 500 without a reason.
		a := c.Patch(t, kit.StrategicPatch, path,
			`{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"c"}],"containers":[{"name":"x","image":"i"}]}}}}`)
		a.Want(t, http.StatusBadRequest, http.StatusInternalServerError)
	}},
}
