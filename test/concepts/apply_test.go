package concepts

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Section "Server-Side Apply" of the API overview, and what the concepts say of it. How values are merged is in
// applymerge_test.go, what kubectl makes of it in kubectlapply_test.go.
func TestApply(t *testing.T) {
	prove(t, nil, slices.Concat(applies, applyConflicts, applyRefusals, handovers, managers, applySubresources,
		applyMerges, applyTopologies)...)
}

// apply applies an object, in YAML or as a map, as a manager. The manager "name&force=true" forces it.
func (c *cluster) apply(t testing.TB, path, manager string, object any) answer {
	t.Helper()
	return c.patch(t, applyPatch, path+"?fieldManager="+manager, object)
}

// data is the ConfigMap a as it is applied, with data in YAML, or without.
func data(text string) map[string]any {
	if text == "" {
		return manifest("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
	}
	return manifest("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {%s}}", text)
}

// owned are the fields that a manager owns, as paths, sorted: ".data.a", `.spec.ports[{"port":80,"protocol":"TCP"}].port`.
// The manager is its name and operation, and its subresource if it has one: "one Apply", "two Update status".
func owned(t testing.TB, a answer, manager string) []string {
	t.Helper()
	fields := []string{}
	entries, _ := a.value(t, "metadata", "managedFields").([]any)
	for _, item := range entries {
		entry := item.(map[string]any)
		if strings.TrimSpace(fmt.Sprint(entry["manager"], " ", entry["operation"], " ", text(entry["subresource"]))) == manager {
			fields = append(fields, paths("", entry["fieldsV1"].(map[string]any))...)
		}
	}
	slices.Sort(fields)
	return fields
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

// paths are the leaves of a set of fields.
func paths(at string, fields map[string]any) []string {
	if len(fields) == 0 {
		return []string{at}
	}
	var all []string
	for key, below := range fields {
		kind, name, _ := strings.Cut(key, ":")
		switch kind {
		case ".":
			continue // the struct itself, of which there is more
		case "f":
			name = "." + name
		default: // k and v: an element of a list, by its keys or its value
			name = "[" + name + "]"
		}
		all = append(all, paths(at+name, below.(map[string]any))...)
	}
	return all
}

// managersOf are the managers of an object, sorted.
func managersOf(t testing.TB, a answer) []string {
	t.Helper()
	names := []string{}
	entries, _ := a.value(t, "metadata", "managedFields").([]any)
	for _, item := range entries {
		name, _, _ := unstructured.NestedString(item.(map[string]any), "manager")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// conflicts fails the test unless the answer is a conflict with these managers over these fields: `conflict with "one": .data.a`.
func conflicts(t testing.TB, a answer, want ...string) {
	t.Helper()
	a.conflict(t, fmt.Sprintf("Apply failed with %d conflict", len(want)))
	got := []string{}
	for _, cause := range a.value(t, "details", "causes").([]any) {
		c := cause.(map[string]any)
		equal(t, c["reason"], "FieldManagerConflict")
		got = append(got, fmt.Sprint(c["message"], ": ", c["field"]))
	}
	slices.Sort(want)
	slices.Sort(got)
	equal(t, got, want)
}

var applies = []promise{
	{"an apply creates what does not exist, changes what does, and else changes nothing", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		created := c.apply(t, path, "one", data("a: '1'")).created(t)
		equal(t, created.value(t, "data"), map[string]any{"a": "1"})
		again := c.apply(t, path, "one", data("a: '1'")).ok(t)
		equal(t, again.object(t), created.object(t))
		equal(t, c.apply(t, path, "one", data("a: '2'")).ok(t).text(t, "data", "a"), "2")
	}},
	{"an apply is in YAML, of which JSON is a part; the name of what exists may be left to the path", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		nameless := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  labels:\n    yaml: 'yes'\n"
		c.apply(t, path, "one", nameless).badRequest(t, "name must be provided")
		c.apply(t, path, "one", data("")).created(t)
		c.apply(t, path, "one", nameless).ok(t)
		a := c.apply(t, path, "one", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"json":"yes"}}}`).ok(t)
		equal(t, a.value(t, "metadata", "labels"), map[string]any{"json": "yes"})
	}},
	{"a manager owns the fields that it applies, and nobody what names the object or what the server sets", func(t *testing.T, c *cluster) {
		object := with(with(data("a: '1', b: '2'"), "x", "metadata", "labels", "some"), []string{"example.com/one"},
			"metadata", "finalizers")
		object = with(object, c.namespace, "metadata", "namespace")
		a := c.apply(t, c.path("v1", "configmaps", "a"), "one", object).created(t)
		equal(t, owned(t, a, "one Apply"), []string{".data.a", ".data.b", `.metadata.finalizers["example.com/one"]`,
			".metadata.labels.some"})
		entry := a.value(t, "metadata", "managedFields").([]any)[0].(map[string]any)
		equal(t, entry["apiVersion"], "v1")
		equal(t, entry["fieldsType"], "FieldsV1")
		if text(entry["time"]) == "" {
			t.Errorf("the entry is %v", entry)
		}
		c.setFinalizers(t, c.path("v1", "configmaps", "a")).ok(t)
	}},
	{"a field that its only manager no longer applies is removed, or gets its default", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.apply(t, path, "one", with(data("a: '1', b: '2'"), "x", "metadata", "labels", "some")).created(t)
		a := c.apply(t, path, "one", data("b: '2'")).ok(t)
		equal(t, a.value(t, "data"), map[string]any{"b": "2"})
		equal(t, a.value(t, "metadata", "labels"), nil)

		path = c.path("apps/v1", "deployments", "a")
		c.apply(t, path, "one", deployment("a")).created(t)
		bare := deployment("a")
		unstructured.RemoveNestedField(bare, "spec", "replicas")
		equal(t, c.apply(t, path, "one", bare).ok(t).value(t, "spec", "replicas"), 1.0)
	}},
	{"fields that nobody applies stay through an apply", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.post(t, c.path("v1", "configmaps")+"?fieldManager=two", configMap("a", map[string]string{"z": "9"})).created(t)
		a := c.apply(t, path, "one", data("a: '1'")).ok(t)
		equal(t, a.value(t, "data"), map[string]any{"a": "1", "z": "9"})
		a = c.apply(t, path, "one", data("")).ok(t)
		equal(t, a.value(t, "data"), map[string]any{"z": "9"})
		equal(t, managersOf(t, a), []string{"two"})
	}},
	{"a dry run of an apply shows what would be, conflicts included, and changes nothing", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "configmaps")+"?fieldManager=two", configMap("a", map[string]string{"a": "1"})).created(t)
		c.dry(t, c.path("v1", "configmaps"), configMap("z", nil), func() {
			path := c.path("v1", "configmaps", "a")
			conflicts(t, c.apply(t, path, "one&dryRun=All", data("a: '2'")), `conflict with "two" using v1: .data.a`)
			a := c.apply(t, path, "one&dryRun=All&force=true", data("a: '2'")).ok(t)
			equal(t, owned(t, a, "one Apply"), []string{".data.a"})
			c.apply(t, c.path("v1", "configmaps", "b"), "one&dryRun=All", with(data(""), "b", "metadata", "name")).created(t)
		})
	}},
}

var applyConflicts = []promise{
	{"an apply of another value than other managers' conflicts, naming them and the fields", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.apply(t, path, "one", data("a: '1', b: '1', c: '1'")).created(t)
		before := c.patch(t, mergePatch, path+"?fieldManager=two", `{"data":{"c":"2"}}`).ok(t)
		a := c.apply(t, path, "three", data("a: '3', b: '3', c: '3', d: '3'"))
		conflicts(t, a, `conflict with "one": .data.a`, `conflict with "one": .data.b`, `conflict with "two" using v1: .data.c`)
		equal(t, a.text(t, "message"),
			"Apply failed with 3 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b\nconflicts with \"two\" using v1:\n- .data.c")
		equal(t, c.get(t, path).object(t), before.object(t))
		a = c.apply(t, path, "three", data("a: '3'"))
		equal(t, a.text(t, "message"), `Apply failed with 1 conflict: conflict with "one": .data.a`)
	}},
	{"who forces a conflict overwrites the value and becomes its sole manager", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.apply(t, path, "one", data("a: '1', b: '1'")).created(t)
		a := c.apply(t, path, "two&force=true", data("a: '2'")).ok(t)
		equal(t, a.value(t, "data"), map[string]any{"a": "2", "b": "1"})
		equal(t, owned(t, a, "one Apply"), []string{".data.b"})
		equal(t, owned(t, a, "two Apply"), []string{".data.a"})
		conflicts(t, c.apply(t, path, "one", data("a: '1', b: '1'")), `conflict with "two": .data.a`)
	}},
	{"who gives up a field leaves its value to the others", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.apply(t, path, "one", data("a: '1', b: '1'")).created(t)
		c.apply(t, path, "two&force=true", data("a: '2'")).ok(t)
		a := c.apply(t, path, "one", data("b: '1'")).ok(t)
		equal(t, a.value(t, "data"), map[string]any{"a": "2", "b": "1"})
	}},
	{"who applies the same value shares it; then no one of the managers can change it without a conflict", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.apply(t, path, "one", data("a: '1'")).created(t)
		a := c.apply(t, path, "two", data("a: '1'")).ok(t)
		for _, manager := range []string{"one", "two"} {
			equal(t, owned(t, a, manager+" Apply"), []string{".data.a"})
		}
		conflicts(t, c.apply(t, path, "one", data("a: '2'")), `conflict with "two": .data.a`)
		conflicts(t, c.apply(t, path, "two", data("a: '2'")), `conflict with "one": .data.a`)
		conflicts(t, c.apply(t, path, "three", data("a: '2'")), `conflict with "one": .data.a`, `conflict with "two": .data.a`)
		// A shared field stays until the last has given it up.
		equal(t, c.apply(t, path, "one", data("")).ok(t).value(t, "data"), map[string]any{"a": "1"})
		equal(t, c.apply(t, path, "two", data("b: '1'")).ok(t).value(t, "data"), map[string]any{"b": "1"})
	}},
	{"other writes never conflict: they take over the fields that they change, and no others", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.apply(t, path, "one", data("a: '1', b: '1', c: '1', d: '1'")).created(t)
		c.patch(t, mergePatch, path+"?fieldManager=merger", `{"data":{"a":"2","b":"1"}}`).ok(t)
		c.patch(t, jsonPatch, path+"?fieldManager=patcher", `[{"op":"replace","path":"/data/b","value":"2"}]`).ok(t)
		c.patch(t, strategicPatch, path+"?fieldManager=strategist", `{"data":{"c":"2"}}`).ok(t)
		now := c.get(t, path).object(t)
		a := c.put(t, path+"?fieldManager=putter", with(now, "2", "data", "d")).ok(t)
		for manager, field := range map[string]string{"merger": ".data.a", "patcher": ".data.b", "strategist": ".data.c", "putter": ".data.d"} {
			equal(t, owned(t, a, manager+" Update"), []string{field})
		}
		equal(t, owned(t, a, "one Apply"), []string{})
		conflicts(t, c.apply(t, path, "one", data("a: '1'")), `conflict with "merger" using v1: .data.a`)
		// Who removes a field leaves it to nobody.
		a = c.patch(t, mergePatch, path+"?fieldManager=putter", `{"data":{"a":null}}`).ok(t)
		equal(t, owned(t, a, "merger Update"), []string{})
		c.apply(t, path, "one", data("a: '1'")).ok(t)
	}},
	{"the same manager's applies and updates are kept apart, and conflict", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.apply(t, path, "one", data("a: '1'")).created(t)
		a := c.patch(t, mergePatch, path+"?fieldManager=one", `{"data":{"a":"2"}}`).ok(t)
		equal(t, owned(t, a, "one Update"), []string{".data.a"})
		conflicts(t, c.apply(t, path, "one", data("a: '1'")), `conflict with "one" using v1: .data.a`)
	}},
}

var applyRefusals = []promise{
	{"an apply must say who its manager is", func(t *testing.T, c *cluster) {
		for _, query := range []string{"", "?fieldManager="} {
			c.patch(t, applyPatch, c.path("v1", "configmaps", "a")+query, data("")).invalid(t,
				"fieldManager: Required value: is required for apply patch")
		}
	}},
	{"the name of a manager has at most 128 bytes, all of which can be printed, in every write", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		c.apply(t, path, strings.Repeat("m", 128), data("")).created(t)
		for name, message := range map[string]string{
			strings.Repeat("m", 129): "fieldManager: Too long: may not be more than 128 bytes",
			"a%0Ab":                  `fieldManager: Invalid value: "a\nb": invalid character U+000A (at position 1)`,
		} {
			for _, a := range []answer{
				c.apply(t, path, name, data("")),
				c.post(t, c.path("v1", "configmaps")+"?fieldManager="+name, configMap("b", nil)),
				c.put(t, path+"?fieldManager="+name, configMap("a", nil)),
				c.patch(t, mergePatch, path+"?fieldManager="+name, `{}`),
			} {
				a.invalid(t, message)
			}
		}
	}},
	{"managed fields can't be applied", func(t *testing.T, c *cluster) {
		for _, fields := range []string{"[]", "[{}]", "[{manager: one}]"} {
			body := "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, managedFields: " + fields + "}}"
			c.apply(t, c.path("v1", "configmaps", "a"), "one", body).badRequest(t, "metadata.managedFields must be nil")
		}
	}},
	{"an apply is of an object of the path's kind, name and namespace", func(t *testing.T, c *cluster) {
		for body, message := range map[string]string{
			"metadata: {name: a}":                                               "invalid object type: /, Kind=",
			"{kind: ConfigMap, metadata: {name: a}}":                            "invalid object type: /, Kind=ConfigMap",
			"{apiVersion: v1, metadata: {name: a}}":                             "invalid object type: /v1, Kind=",
			"{apiVersion: v1, kind: Secret, metadata: {name: a}}":               "invalid object type: /v1, Kind=Secret",
			"{apiVersion: v2, kind: ConfigMap, metadata: {name: a}}":            "invalid object type: /v2, Kind=ConfigMap",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}":            "the name of the object (b) does not match the name on the URL (a)",
			"{apiVersion: v1, kind: ConfigMap, metadata: {namespace: default}}": "the namespace of the provided object does not match the namespace sent on the request",
			"a: [b":     "error decoding YAML",
			"- a":       "error decoding YAML",
			"":          "invalid object type: /, Kind=",
			"just text": "error decoding YAML",
		} {
			c.apply(t, c.path("v1", "configmaps", "a"), "one", body).badRequest(t, message)
		}
		c.get(t, c.path("v1", "configmaps", "a")).notFound(t)
	}},
	{"a field that the schema does not have, or of another type, can't be applied at any level of validation", func(t *testing.T, c *cluster) {
		// kube-apiserver answers 500 and gives no reason.
		for _, level := range []string{"", "&fieldValidation=Ignore", "&fieldValidation=Strict"} {
			path := c.path("v1", "configmaps", "a")
			a := c.apply(t, path, "one"+level, with(data(""), 1, "extra")).want(t, http.StatusBadRequest, http.StatusInternalServerError)
			if message := a.text(t, "message"); !strings.Contains(message,
				"failed to create typed patch object") || !strings.Contains(message, ".extra: field not declared in schema") {
				t.Errorf("the message is %s", message)
			}
			a = c.apply(t, path, "one"+level, data("a: 1")).want(t, http.StatusBadRequest, http.StatusInternalServerError)
			if message := a.text(t, "message"); !strings.Contains(message,
				".data.a: expected string, got &value.valueUnstructured{Value:1}") {
				t.Errorf("the message is %s", message)
			}
		}
	}},
	{"an apply may name the version and the uid that it is of", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		created := c.apply(t, path, "one", data("a: '1'")).created(t)
		uid, version := created.text(t, "metadata", "uid"), created.version(t)
		c.apply(t, path, "one", with(data("a: '2'"), "1", "metadata", "resourceVersion")).conflict(t, modified)
		c.apply(t, path, "one", with(data("a: '2'"), "other", "metadata", "uid")).invalid(t, "metadata.uid", "field is immutable")
		both := with(with(data("a: '2'"), version, "metadata", "resourceVersion"), uid, "metadata", "uid")
		c.apply(t, path, "one", both).ok(t)
		c.apply(t, path, "one", both).conflict(t, modified)
		none := with(with(data(""), "none", "metadata", "name"), uid, "metadata", "uid")
		c.apply(t, c.path("v1", "configmaps", "none"), "one", none).conflict(t,
			"uid mismatch: the provided object specified uid "+uid+", and no existing object was found")
	}},
	{"who may patch may apply, but needs the right to create for what does not exist", func(t *testing.T, c *cluster) {
		path := c.path("v1", "configmaps", "a")
		user := "apply-" + c.namespace
		as := func(path string, object map[string]any) answer {
			return c.send(t, http.MethodPatch, path+"?fieldManager=one", header{"Impersonate-User", user,
				"Content-Type", applyPatch}, object)
		}
		c.apply(t, path, "two", data("")).created(t)
		roles := c.path("rbac.authorization.k8s.io/v1", "roles")
		c.post(t, roles,
			manifest("{metadata: {name: patcher}, rules: [{apiGroups: [''], resources: [configmaps], verbs: [patch]}]}")).created(t)
		c.post(t, c.path("rbac.authorization.k8s.io/v1", "rolebindings"), manifest(`{metadata: {name: patcher},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: patcher}, subjects: [{kind: User, name: %s}]}`, user)).created(t)
		eventually(t, "the user may patch", func() bool {
			return as(path, data("a: '1'")).want(t, http.StatusOK, http.StatusForbidden).Code == http.StatusOK
		})
		other := with(data(""), "b", "metadata", "name")
		as(c.path("v1", "configmaps", "b"), other).forbidden(t)
		role := manifest("{metadata: {name: patcher}, rules: [{apiGroups: [''], resources: [configmaps], verbs: [patch, create]}]}")
		c.put(t, roles+"/patcher", role).ok(t)
		eventually(t, "the user may create", func() bool {
			return as(c.path("v1", "configmaps", "b"), other).want(t, http.StatusCreated, http.StatusForbidden).Code == http.StatusCreated
		})
	}},
}
