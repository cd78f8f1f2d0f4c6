package concepts

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Section "Updates to existing resources": the operation patch. Server-side apply is in apply_test.go.
func TestPatches(t *testing.T) {
	prove(t, nil, slices.Concat(jsonPatches, mergePatches, strategicPatches)...)
}

// unprocessable is what kube-apiserver says of a JSON patch that can't be carried out.
const unprocessable = "the server rejected our request due to an error in our request"

// patchable makes the ConfigMap that most patches are of, and returns its path.
func (c *cluster) patchable(t *testing.T) string {
	t.Helper()
	object := with(configMap("a", map[string]string{"a": "1", "b": "2"}), map[string]any{"x": "1", "y": "2"}, "metadata", "labels")
	c.post(t, c.path("v1", "configmaps"), object).created(t)
	return c.path("v1", "configmaps", "a")
}

var jsonPatches = []promise{
	{"a JSON patch adds, replaces, copies, moves, removes and tests, one after the other", func(t *testing.T, c *cluster) {
		path := c.patchable(t)
		a := c.patch(t, jsonPatch, path, `[{"op":"test","path":"/data/a","value":"1"},{"op":"add","path":"/data/c","value":"3"},
			{"op":"replace","path":"/data/a","value":"4"},{"op":"copy","from":"/data/a","path":"/data/d"},
			{"op":"move","from":"/data/b","path":"/data/e"},{"op":"remove","path":"/data/c"},
			{"op":"add","path":"/metadata/annotations","value":{"example.com/a":"1"}},
			{"op":"replace","path":"/metadata/annotations/example.com~1a","value":"2"}]`).ok(t)
		equal(t, a.value(t, "data"), map[string]any{"a": "4", "d": "4", "e": "2"})
		equal(t, a.value(t, "metadata", "annotations"), map[string]any{"example.com/a": "2"})
	}},
	{"a JSON patch reaches into arrays", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.post(t, collection(path), deployment("a")).created(t)
		a := c.patch(t, jsonPatch, path, `[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"last","image":"i"}},
			{"op":"add","path":"/spec/template/spec/containers/0","value":{"name":"first","image":"i"}},
			{"op":"replace","path":"/spec/template/spec/containers/1/image","value":"j"}]`).ok(t)
		equal(t, containers(t, a), []string{"first i", "c j", "last i"})
		c.patch(t, jsonPatch, path, `[{"op":"add","path":"/spec/template/spec/containers/9","value":{"name":"x","image":"i"}}]`).
			refused(t, http.StatusUnprocessableEntity, "Invalid", unprocessable)
	}},
	{"a JSON patch is carried out as a whole or, when a test fails or a path leads nowhere, not at all", func(t *testing.T, c *cluster) {
		path := c.patchable(t)
		before := c.get(t, path).object(t)
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
			a := c.patch(t, jsonPatch, path, `[{"op":"add","path":"/data/new","value":"1"},`+operation+`]`)
			a.invalid(t, unprocessable)
		}
		equal(t, c.get(t, path).object(t), before)
	}},
	{"the operation test makes a patch conditional on what is there, so that an increment needs no read", func(t *testing.T, c *cluster) {
		path := c.patchable(t)
		increment := func(from, to int) answer {
			return c.patch(t, jsonPatch, path,
				fmt.Sprintf(`[{"op":"test","path":"/data/a","value":"%d"},{"op":"replace","path":"/data/a","value":"%d"}]`, from, to))
		}
		increment(1, 2).ok(t)
		c.patch(t, mergePatch, path, `{"data":{"other":"1"}}`).ok(t)
		increment(1, 2).invalid(t)
		increment(2, 3).ok(t)
	}},
	{"what is no JSON patch is 400", func(t *testing.T, c *cluster) {
		path := c.patchable(t)
		for _, body := range []string{"", `{"data":{"a":"1"}}`, `[{"op":"add"`, `"a"`, `[1]`} {
			c.patch(t, jsonPatch, path, body).badRequest(t, "error decoding patch: ")
		}
		c.patch(t, jsonPatch, path, `[]`).ok(t)
	}},
	{"a JSON patch has at most 10,000 operations, and copies a limited number of bytes", func(t *testing.T, c *cluster) {
		path := c.patchable(t)
		operation := `,{"op":"test","path":"/data/a","value":"1"}`
		patch := func(n int) answer { return c.patch(t, jsonPatch, path, "["+strings.Repeat(operation, n)[1:]+"]") }
		patch(10_000).ok(t)
		patch(10_001).refused(t, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge",
			"Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001")
		var copies strings.Builder
		for i := range 40 {
			fmt.Fprintf(&copies, `,{"op":"copy","from":"/data/big","path":"/data/big%d"}`, i)
		}
		bomb := fmt.Sprintf(`[{"op":"add","path":"/data/big","value":"%s"}%s]`, strings.Repeat("x", 100_000), copies.String())
		c.patch(t, jsonPatch, path, bomb).invalid(t, unprocessable)
	}},
	{"a JSON patch that makes another object, or none, of it is refused", func(t *testing.T, c *cluster) {
		path := c.patchable(t)
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
			c.patch(t, jsonPatch, path, "["+operation+"]").want(t, code)
		}
	}},
}

// containers are the names and images of a Deployment's containers.
func containers(t testing.TB, a answer) []string {
	t.Helper()
	var found []string
	list, _ := a.value(t, "spec", "template", "spec", "containers").([]any)
	for _, item := range list {
		container := item.(map[string]any)
		found = append(found, fmt.Sprint(container["name"], " ", container["image"]))
	}
	return found
}

var mergePatches = []promise{
	{"a merge patch sets what it has, deletes what is null, and replaces arrays as a whole", func(t *testing.T, c *cluster) {
		path := c.patchable(t)
		a := c.patch(t, mergePatch, path, `{"metadata":{"labels":{"x":null}},"data":{"b":null,"c":"3","none":null}}`).ok(t)
		equal(t, a.value(t, "data"), map[string]any{"a": "1", "c": "3"})
		equal(t, a.value(t, "metadata", "labels"), map[string]any{"y": "2"})
		equal(t, c.patch(t, mergePatch, path, `{"data":null}`).ok(t).value(t, "data"), nil)
		path = c.path("apps/v1", "deployments", "a")
		c.post(t, collection(path), deployment("a")).created(t)
		a = c.patch(t, mergePatch, path, `{"spec":{"template":{"spec":{"containers":[{"name":"z","image":"j"}]}}}}`).ok(t)
		equal(t, containers(t, a), []string{"z j"})
	}},
	{"what is no merge patch is 400, and one whose result is no such object is 422", func(t *testing.T, c *cluster) {
		path := c.patchable(t)
		for _, body := range []string{"", "null", "[]", `"a"`, `{"data":`, `data: {a: "1"}`} {
			c.patch(t, mergePatch, path, body).badRequest(t)
		}
		for _, body := range []string{`{"data":{"a":1}}`, `{"data":["a"]}`, `{"kind":"Secret"}`, `{"data":{"a b":"1"}}`} {
			c.patch(t, mergePatch, path, body).invalid(t)
		}
	}},
	{"a patch of any kind with a resourceVersion is an update of that version, and else a conflict", func(t *testing.T, c *cluster) {
		path := c.patchable(t)
		old := c.get(t, path).version(t)
		now := c.patch(t, mergePatch, path, `{"data":{"now":"1"}}`).ok(t).version(t)
		patches := func(version string) []answer {
			merged := map[string]any{"metadata": map[string]any{"resourceVersion": version}}
			operation := map[string]any{"op": "replace", "path": "/metadata/resourceVersion", "value": version}
			return []answer{
				c.patch(t, mergePatch, path, merged), c.patch(t, strategicPatch, path, merged), c.patch(t, jsonPatch, path, []any{operation}),
			}
		}
		for _, a := range patches(old) {
			a.conflict(t, modified)
		}
		for _, a := range patches(now) {
			a.ok(t)
		}
	}},
	{"a patch of what does not exist is 404, whatever its kind, and one of a collection 405", func(t *testing.T, c *cluster) {
		for kind, body := range map[string]string{jsonPatch: "[]", mergePatch: "{}", strategicPatch: "{}"} {
			c.patch(t, kind, c.path("v1", "configmaps", "none"), body).notFound(t, `configmaps "none" not found`)
			c.patch(t, kind, c.path("v1", "configmaps"), body).refused(t, http.StatusMethodNotAllowed, "MethodNotAllowed")
		}
	}},
	{"the kind of a patch is its Content-Type, whose parameters don't matter; another is 415", func(t *testing.T, c *cluster) {
		path := c.patchable(t)
		for _, kind := range []string{mergePatch + "; charset=utf-8", strategicPatch + ";charset=UTF-8"} {
			c.patch(t, kind, path, `{"data":{"a":"2"}}`).ok(t)
		}
		for _, kind := range []string{"application/json", "application/yaml", "text/plain", "application/merge-patch+yaml", "nothing", "application/*"} {
			c.patch(t, kind, path, `{}`).refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
		}
	}},
	{"only an apply can be forced", func(t *testing.T, c *cluster) {
		c.patch(t, mergePatch, c.patchable(t)+"?force=true", `{}`).invalid(t,
			"force: Forbidden: may not be specified for non-apply patch")
	}},
	{"subresources are patched as objects are", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.post(t, collection(path), deployment("a")).created(t)
		equal(t, c.patch(t, mergePatch, path+"/scale", `{"spec":{"replicas":4}}`).ok(t).value(t, "spec", "replicas"), 4.0)
		equal(t, c.patch(t, jsonPatch, path+"/scale",
			`[{"op":"replace","path":"/spec/replicas","value":5}]`).ok(t).value(t, "spec", "replicas"), 5.0)
		equal(t, c.patch(t, strategicPatch, path+"/scale", `{"spec":{"replicas":6}}`).ok(t).value(t, "spec", "replicas"), 6.0)
		equal(t, c.get(t, path).value(t, "spec", "replicas"), 6.0)
		c.patch(t, strategicPatch, path+"/status", `{"status":{"conditions":[{"type":"A","status":"True"}]}}`).ok(t)
		a := c.patch(t, strategicPatch, path+"/status", `{"status":{"conditions":[{"type":"B","status":"True"}]}}`).ok(t)
		if conditions := a.value(t, "status", "conditions").([]any); len(conditions) != 2 {
			t.Errorf("the conditions are %v", conditions)
		}
		c.patch(t, mergePatch, path+"/none", `{}`).notFound(t)
	}},
	{"custom resources take JSON and merge patches, and no strategic ones", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, structural)
		path := c.path(groupVersion, "widgets", "a")
		c.post(t, collection(path), with(widget(groupVersion, "a"), manifest("{list: [1, 2], a: 1}"), "spec", "free")).created(t)
		a := c.patch(t, mergePatch, path, `{"spec":{"free":{"list":[3],"a":null,"b":1.5}}}`).ok(t)
		equal(t, a.value(t, "spec", "free"), map[string]any{"list": []any{3.0}, "b": 1.5})
		a = c.patch(t, jsonPatch, path, `[{"op":"add","path":"/spec/free/list/0","value":"x"}]`).ok(t)
		equal(t, a.value(t, "spec", "free", "list"), []any{"x", 3.0})
		c.patch(t, strategicPatch, path, `{"spec":{"replicas":2}}`).refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType",
			"the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml")
		c.patch(t, mergePatch, path, `{"spec":{"replicas":"many"}}`).invalid(t, "spec.replicas")
		c.patch(t, mergePatch, path, `{"kind":"Gadget"}`).want(t, http.StatusBadRequest, http.StatusUnprocessableEntity)
	}},
}

var strategicPatches = []promise{
	{"a strategic merge patch merges lists whose elements have a key, and adds what is new", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.post(t, collection(path), deployment("a")).created(t)
		a := c.patch(t, strategicPatch, path,
			`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"j"},{"name":"d","image":"k"}]}}}}`).ok(t)
		if got := containers(t, a); len(got) != 2 || !strings.Contains(fmt.Sprint(got),
			"c j") || !strings.Contains(fmt.Sprint(got), "d k") {
			t.Errorf("the containers are %v", got)
		}
		// Lists of other elements are replaced.
		c.patch(t, strategicPatch, path, `{"spec":{"template":{"spec":{"containers":[{"name":"c","args":["a","b"]}]}}}}`).ok(t)
		a = c.patch(t, strategicPatch, path, `{"spec":{"template":{"spec":{"containers":[{"name":"c","args":["c"]}]}}}}`).ok(t)
		for _, item := range a.value(t, "spec", "template", "spec", "containers").([]any) {
			if container := item.(map[string]any); container["name"] == "c" {
				equal(t, container["args"], []any{"c"})
			}
		}
		// Finalizers are merged as a set.
		c.patch(t, strategicPatch, path, `{"metadata":{"finalizers":["example.com/a"]}}`).ok(t)
		a = c.patch(t, strategicPatch, path, `{"metadata":{"finalizers":["example.com/b"]}}`).ok(t)
		if got := a.value(t, "metadata", "finalizers").([]any); len(got) != 2 {
			t.Errorf("the finalizers are %v", got)
		}
		a = c.patch(t, strategicPatch, path, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["example.com/a"]}}`).ok(t)
		equal(t, a.value(t, "metadata", "finalizers"), []any{"example.com/b"})
		c.setFinalizers(t, path).ok(t)
	}},
	{"the directive $patch deletes an element or a map, or replaces a list or a map", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.post(t, collection(path), with(deployment("a"), map[string]any{"x": "1", "y": "2"}, "metadata", "labels")).created(t)
		c.patch(t, strategicPatch, path, `{"spec":{"template":{"spec":{"containers":[{"name":"d","image":"k"}]}}}}`).ok(t)
		a := c.patch(t, strategicPatch, path, `{"spec":{"template":{"spec":{"containers":[{"$patch":"delete","name":"c"}]}}}}`).ok(t)
		equal(t, containers(t, a), []string{"d k"})
		a = c.patch(t, strategicPatch, path,
			`{"spec":{"template":{"spec":{"containers":[{"$patch":"replace"},{"name":"e","image":"l"}]}}}}`).ok(t)
		equal(t, containers(t, a), []string{"e l"})
		a = c.patch(t, strategicPatch, path, `{"metadata":{"labels":{"$patch":"replace","z":"3"}}}`).ok(t)
		equal(t, a.value(t, "metadata", "labels"), map[string]any{"z": "3"})
		a = c.patch(t, strategicPatch, path, `{"metadata":{"labels":{"$patch":"delete"}}}`).ok(t)
		equal(t, a.value(t, "metadata", "labels"), nil)
	}},
	{"the directive $retainKeys drops what a union had before", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.post(t, collection(path), deployment("a")).created(t)
		c.patch(t, strategicPatch, path, `{"spec":{"strategy":{"type":"Recreate"}}}`).invalid(t,
			"spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'")
		a := c.patch(t, strategicPatch, path, `{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}`).ok(t)
		equal(t, a.value(t, "spec", "strategy"), map[string]any{"type": "Recreate"})
	}},
	{"the directive $setElementOrder puts the elements of a list in order", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.post(t, collection(path), deployment("a")).created(t)
		for _, order := range [][]string{{"new", "c"}, {"c", "new"}} {
			a := c.patch(t, strategicPatch, path, fmt.Sprintf(`{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":%q},{"name":%q}],
				"containers":[{"name":"new","image":"i"}]}}}}`, order[0], order[1])).ok(t)
			equal(t, containers(t, a), []string{order[0] + " i", order[1] + " i"})
		}
		// kube-apiserver answers 500 and gives no reason.
		a := c.patch(t, strategicPatch, path,
			`{"spec":{"template":{"spec":{"$setElementOrder/containers":[{"name":"c"}],"containers":[{"name":"x","image":"i"}]}}}}`)
		a.want(t, http.StatusBadRequest, http.StatusInternalServerError)
	}},
	{"what is no strategic merge patch is 400, and one that does not fit the object 422", func(t *testing.T, c *cluster) {
		path := c.path("apps/v1", "deployments", "a")
		c.post(t, collection(path), deployment("a")).created(t)
		for _, body := range []string{"", "[]", `"a"`, `{"spec":`} {
			c.patch(t, strategicPatch, path, body).badRequest(t)
		}
		// kube-apiserver answers 500 and gives no reason.
		c.patch(t, strategicPatch, path, `{"spec":{"template":{"spec":{"containers":[{"image":"i"}]}}}}`).want(t,
			http.StatusBadRequest, http.StatusInternalServerError)
		c.patch(t, strategicPatch, path, `{"spec":[]}`).invalid(t, "cannot restore struct from: slice")
	}},
}
