// Package apply tests sqube against the documentation of server-side apply.
package apply

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }

// Section "Server-Side Apply" of the API overview and the concepts. Merging is in merge_test.go, kubectl in kubectl_test.go.
func TestApply(t *testing.T) {
	kit.Prove(t, nil, slices.Concat(applies, applyConflicts, applyRefusals, handovers, managers, applySubresources,
		applyMerges, applyTopologies, kubectlApplies)...)
}

// data returns the ConfigMap a to apply, with data in YAML, or without data.
func data(text string) map[string]any {
	if text == "" {
		return kit.Manifest("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")
	}
	return kit.Manifest("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {%s}}", text)
}

// owned returns the sorted paths of the fields that a manager owns: ".data.a",
// `.spec.ports[{"port":80,"protocol":"TCP"}].port`. The manager is given by name, operation and subresource, if any: "one
// Apply", "two Update status".
func owned(t testing.TB, a kit.Answer, manager string) []string {
	t.Helper()
	fields := []string{}
	entries, _ := a.Value(t, "metadata", "managedFields").([]any)
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

// paths returns the leaves of a set of fields.
func paths(at string, fields map[string]any) []string {
	if len(fields) == 0 {
		return []string{at}
	}
	var all []string
	for key, below := range fields {
		kind, name, _ := strings.Cut(key, ":")
		switch kind {
		case ".":
			continue // the struct itself, whose fields follow
		case "f":
			name = "." + name
		default: // k and v: an element of a list, by its keys or its value
			name = "[" + name + "]"
		}
		all = append(all, paths(at+name, below.(map[string]any))...)
	}
	return all
}

// managersOf returns the sorted managers of an object.
func managersOf(t testing.TB, a kit.Answer) []string {
	t.Helper()
	names := []string{}
	entries, _ := a.Value(t, "metadata", "managedFields").([]any)
	for _, item := range entries {
		name, _, _ := unstructured.NestedString(item.(map[string]any), "manager")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// conflicts fails the test unless the response is a conflict with these managers over these fields: `conflict with "one":
// .data.a`.
func conflicts(t testing.TB, a kit.Answer, want ...string) {
	t.Helper()
	a.Conflict(t, fmt.Sprintf("Apply failed with %d conflict", len(want)))
	got := []string{}
	for _, cause := range a.Value(t, "details", "causes").([]any) {
		c := cause.(map[string]any)
		kit.Equal(t, c["reason"], "FieldManagerConflict")
		got = append(got, fmt.Sprint(c["message"], ": ", c["field"]))
	}
	slices.Sort(want)
	slices.Sort(got)
	kit.Equal(t, got, want)
}

var applies = []kit.Promise{
	{Statement: "an apply creates a missing object, updates an existing one, and otherwise changes nothing", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		created := c.Apply(t, path, "one", data("a: '1'")).Created(t)
		kit.Equal(t, created.Value(t, "data"), map[string]any{"a": "1"})
		again := c.Apply(t, path, "one", data("a: '1'")).OK(t)
		kit.Equal(t, again.Object(t), created.Object(t))
		kit.Equal(t, c.Apply(t, path, "one", data("a: '2'")).OK(t).Text(t, "data", "a"), "2")
	}},
	{Statement: "an apply is in YAML, which includes JSON; the name of an existing object may be omitted", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		nameless := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  labels:\n    yaml: 'yes'\n"
		c.Apply(t, path, "one", nameless).BadRequest(t, "name must be provided")
		c.Apply(t, path, "one", data("")).Created(t)
		c.Apply(t, path, "one", nameless).OK(t)
		a := c.Apply(t, path, "one", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"json":"yes"}}}`).OK(t)
		kit.Equal(t, a.Value(t, "metadata", "labels"), map[string]any{"json": "yes"})
	}},
	{Statement: "a manager owns the fields that it applies, except for the object's name and what the server sets", Proof: func(t *testing.T, c *kit.Cluster) {
		object := kit.With(kit.With(data("a: '1', b: '2'"), "x", "metadata", "labels", "some"), []string{"example.com/one"},
			"metadata", "finalizers")
		object = kit.With(object, c.Namespace, "metadata", "namespace")
		a := c.Apply(t, c.Path("v1", "configmaps", "a"), "one", object).Created(t)
		kit.Equal(t, owned(t, a, "one Apply"), []string{".data.a", ".data.b", `.metadata.finalizers["example.com/one"]`,
			".metadata.labels.some"})
		entry := a.Value(t, "metadata", "managedFields").([]any)[0].(map[string]any)
		kit.Equal(t, entry["apiVersion"], "v1")
		kit.Equal(t, entry["fieldsType"], "FieldsV1")
		if text(entry["time"]) == "" {
			t.Errorf("the entry is %v", entry)
		}
		c.SetFinalizers(t, c.Path("v1", "configmaps", "a")).OK(t)
	}},
	{Statement: "a field that its only manager no longer applies is removed or defaulted", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Apply(t, path, "one", kit.With(data("a: '1', b: '2'"), "x", "metadata", "labels", "some")).Created(t)
		a := c.Apply(t, path, "one", data("b: '2'")).OK(t)
		kit.Equal(t, a.Value(t, "data"), map[string]any{"b": "2"})
		kit.Equal(t, a.Value(t, "metadata", "labels"), nil)

		path = c.Path("apps/v1", "deployments", "a")
		c.Apply(t, path, "one", kit.Deployment("a")).Created(t)
		bare := kit.Deployment("a")
		unstructured.RemoveNestedField(bare, "spec", "replicas")
		kit.Equal(t, c.Apply(t, path, "one", bare).OK(t).Value(t, "spec", "replicas"), 1.0)
	}},
	{Statement: "an apply leaves fields without a manager unchanged", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Post(t, c.Path("v1", "configmaps")+"?fieldManager=two", kit.ConfigMap("a", map[string]string{"z": "9"})).Created(t)
		a := c.Apply(t, path, "one", data("a: '1'")).OK(t)
		kit.Equal(t, a.Value(t, "data"), map[string]any{"a": "1", "z": "9"})
		a = c.Apply(t, path, "one", data("")).OK(t)
		kit.Equal(t, a.Value(t, "data"), map[string]any{"z": "9"})
		kit.Equal(t, managersOf(t, a), []string{"two"})
	}},
	{Statement: "a dry run of an apply returns the result, including conflicts, and changes nothing", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "configmaps")+"?fieldManager=two", kit.ConfigMap("a", map[string]string{"a": "1"})).Created(t)
		c.ChangesNothing(t, c.Path("v1", "configmaps"), kit.ConfigMap("z", nil), func() {
			path := c.Path("v1", "configmaps", "a")
			conflicts(t, c.Apply(t, path, "one&dryRun=All", data("a: '2'")), `conflict with "two" using v1: .data.a`)
			a := c.Apply(t, path, "one&dryRun=All&force=true", data("a: '2'")).OK(t)
			kit.Equal(t, owned(t, a, "one Apply"), []string{".data.a"})
			c.Apply(t, c.Path("v1", "configmaps", "b"), "one&dryRun=All", kit.With(data(""), "b", "metadata", "name")).Created(t)
		})
	}},
}

var applyConflicts = []kit.Promise{
	{Statement: "an apply of a value that differs from other managers' is a conflict, which names them and the fields", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Apply(t, path, "one", data("a: '1', b: '1', c: '1'")).Created(t)
		before := c.Patch(t, kit.MergePatch, path+"?fieldManager=two", `{"data":{"c":"2"}}`).OK(t)
		a := c.Apply(t, path, "three", data("a: '3', b: '3', c: '3', d: '3'"))
		conflicts(t, a, `conflict with "one": .data.a`, `conflict with "one": .data.b`, `conflict with "two" using v1: .data.c`)
		kit.Equal(t, a.Text(t, "message"),
			"Apply failed with 3 conflicts: conflicts with \"one\":\n- .data.a\n- .data.b\nconflicts with \"two\" using v1:\n- .data.c")
		kit.Equal(t, c.Get(t, path).Object(t), before.Object(t))
		a = c.Apply(t, path, "three", data("a: '3'"))
		kit.Equal(t, a.Text(t, "message"), `Apply failed with 1 conflict: conflict with "one": .data.a`)
	}},
	{Statement: "forcing a conflict overwrites the value, and makes the manager its only one", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Apply(t, path, "one", data("a: '1', b: '1'")).Created(t)
		a := c.Apply(t, path, "two&force=true", data("a: '2'")).OK(t)
		kit.Equal(t, a.Value(t, "data"), map[string]any{"a": "2", "b": "1"})
		kit.Equal(t, owned(t, a, "one Apply"), []string{".data.b"})
		kit.Equal(t, owned(t, a, "two Apply"), []string{".data.a"})
		conflicts(t, c.Apply(t, path, "one", data("a: '1', b: '1'")), `conflict with "two": .data.a`)
	}},
	{Statement: "when a manager gives up a field, its other managers keep the value", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Apply(t, path, "one", data("a: '1', b: '1'")).Created(t)
		c.Apply(t, path, "two&force=true", data("a: '2'")).OK(t)
		a := c.Apply(t, path, "one", data("b: '1'")).OK(t)
		kit.Equal(t, a.Value(t, "data"), map[string]any{"a": "2", "b": "1"})
	}},
	{Statement: "managers that apply the same value share it; then none of them can change it without a conflict", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Apply(t, path, "one", data("a: '1'")).Created(t)
		a := c.Apply(t, path, "two", data("a: '1'")).OK(t)
		for _, manager := range []string{"one", "two"} {
			kit.Equal(t, owned(t, a, manager+" Apply"), []string{".data.a"})
		}
		conflicts(t, c.Apply(t, path, "one", data("a: '2'")), `conflict with "two": .data.a`)
		conflicts(t, c.Apply(t, path, "two", data("a: '2'")), `conflict with "one": .data.a`)
		conflicts(t, c.Apply(t, path, "three", data("a: '2'")), `conflict with "one": .data.a`, `conflict with "two": .data.a`)
		// A shared field stays until its last manager has given it up.
		kit.Equal(t, c.Apply(t, path, "one", data("")).OK(t).Value(t, "data"), map[string]any{"a": "1"})
		kit.Equal(t, c.Apply(t, path, "two", data("b: '1'")).OK(t).Value(t, "data"), map[string]any{"b": "1"})
	}},
	{Statement: "other writes never conflict: they take over only the fields that they change", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Apply(t, path, "one", data("a: '1', b: '1', c: '1', d: '1'")).Created(t)
		c.Patch(t, kit.MergePatch, path+"?fieldManager=merger", `{"data":{"a":"2","b":"1"}}`).OK(t)
		c.Patch(t, kit.JSONPatch, path+"?fieldManager=patcher", `[{"op":"replace","path":"/data/b","value":"2"}]`).OK(t)
		c.Patch(t, kit.StrategicPatch, path+"?fieldManager=strategist", `{"data":{"c":"2"}}`).OK(t)
		now := c.Get(t, path).Object(t)
		a := c.Put(t, path+"?fieldManager=putter", kit.With(now, "2", "data", "d")).OK(t)
		for manager, field := range map[string]string{"merger": ".data.a", "patcher": ".data.b", "strategist": ".data.c", "putter": ".data.d"} {
			kit.Equal(t, owned(t, a, manager+" Update"), []string{field})
		}
		kit.Equal(t, owned(t, a, "one Apply"), []string{})
		conflicts(t, c.Apply(t, path, "one", data("a: '1'")), `conflict with "merger" using v1: .data.a`)
		// A removed field has no manager.
		a = c.Patch(t, kit.MergePatch, path+"?fieldManager=putter", `{"data":{"a":null}}`).OK(t)
		kit.Equal(t, owned(t, a, "merger Update"), []string{})
		c.Apply(t, path, "one", data("a: '1'")).OK(t)
	}},
	{Statement: "applies and updates of the same manager are tracked separately, and conflict", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Apply(t, path, "one", data("a: '1'")).Created(t)
		a := c.Patch(t, kit.MergePatch, path+"?fieldManager=one", `{"data":{"a":"2"}}`).OK(t)
		kit.Equal(t, owned(t, a, "one Update"), []string{".data.a"})
		conflicts(t, c.Apply(t, path, "one", data("a: '1'")), `conflict with "one" using v1: .data.a`)
	}},
}

var applyRefusals = []kit.Promise{
	{Statement: "in every write, the name of a manager has at most 128 bytes, all printable", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		c.Apply(t, path, strings.Repeat("m", 128), data("")).Created(t)
		for name, message := range map[string]string{
			strings.Repeat("m", 129): "fieldManager: Too long: may not be more than 128 bytes",
			"a%0Ab":                  `fieldManager: Invalid value: "a\nb": invalid character U+000A (at position 1)`,
		} {
			for _, a := range []kit.Answer{
				c.Apply(t, path, name, data("")),
				c.Post(t, c.Path("v1", "configmaps")+"?fieldManager="+name, kit.ConfigMap("b", nil)),
				c.Put(t, path+"?fieldManager="+name, kit.ConfigMap("a", nil)),
				c.Patch(t, kit.MergePatch, path+"?fieldManager="+name, `{}`),
			} {
				a.Invalid(t, message)
			}
		}
	}},
	{Statement: "an unknown field, or one of another type, can't be applied, whatever the level of validation", Proof: func(t *testing.T, c *kit.Cluster) {
		// kube-apiserver returns 500 without a reason.
		for _, level := range []string{"", "&fieldValidation=Ignore", "&fieldValidation=Strict"} {
			path := c.Path("v1", "configmaps", "a")
			a := c.Apply(t, path, "one"+level, kit.With(data(""), 1, "extra")).Want(t, http.StatusBadRequest, http.StatusInternalServerError)
			if message := a.Text(t, "message"); !strings.Contains(message,
				"failed to create typed patch object") || !strings.Contains(message, ".extra: field not declared in schema") {
				t.Errorf("the message is %s", message)
			}
			a = c.Apply(t, path, "one"+level, data("a: 1")).Want(t, http.StatusBadRequest, http.StatusInternalServerError)
			if message := a.Text(t, "message"); !strings.Contains(message,
				".data.a: expected string, got &value.valueUnstructured{Value:1}") {
				t.Errorf("the message is %s", message)
			}
		}
	}},
	{Statement: "an apply may specify the resourceVersion and the uid", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "configmaps", "a")
		created := c.Apply(t, path, "one", data("a: '1'")).Created(t)
		uid, version := created.Text(t, "metadata", "uid"), created.ResourceVersion(t)
		c.Apply(t, path, "one", kit.With(data("a: '2'"), "1", "metadata", "resourceVersion")).Conflict(t, kit.ModifiedMessage)
		c.Apply(t, path, "one", kit.With(data("a: '2'"), "other", "metadata", "uid")).Invalid(t, "metadata.uid", "field is immutable")
		both := kit.With(kit.With(data("a: '2'"), version, "metadata", "resourceVersion"), uid, "metadata", "uid")
		c.Apply(t, path, "one", both).OK(t)
		c.Apply(t, path, "one", both).Conflict(t, kit.ModifiedMessage)
		none := kit.With(kit.With(data(""), "none", "metadata", "name"), uid, "metadata", "uid")
		c.Apply(t, c.Path("v1", "configmaps", "none"), "one", none).Conflict(t,
			"uid mismatch: the provided object specified uid "+uid+", and no existing object was found")
	}},
}
