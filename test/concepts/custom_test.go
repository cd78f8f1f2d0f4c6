package concepts

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// custom is a custom resource, widgets, in a group that the promise has to itself.
type custom struct {
	*cluster
	group string
}

// custom names widgets, which is not defined yet.
func (c *cluster) custom() custom { return custom{c, c.namespace + ".example.com"} }

// define defines widgets with these versions, of which the first is stored unless one says so, and waits until they are served.
func (c *cluster) define(t testing.TB, versions ...map[string]any) custom {
	t.Helper()
	w := c.custom()
	c.post(t, definitions, w.definition(versions...)).want(t, http.StatusCreated)
	w.established(t)
	return w
}

// version is one of a definition: its name, the properties of its objects, and further fields, in YAML.
func version(name, properties string, fields ...string) map[string]any {
	v := map[string]any{
		"name": name, "served": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
			"properties": manifest("%s", properties)}},
	}
	for _, f := range fields {
		maps.Copy(v, manifest("%s", f))
	}
	return v
}

// definition is that of widgets.
func (w custom) definition(versions ...map[string]any) map[string]any {
	stored := false
	list := make([]any, len(versions))
	for i, v := range versions {
		stored = stored || v["storage"] == true
		list[i] = v
	}
	for i, v := range versions {
		v["storage"] = v["storage"] == true || !stored && i == 0
	}
	d := manifest(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {
		scope: Namespaced, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}}}`)
	d["metadata"] = map[string]any{"name": w.name()}
	set(d, w.group, "spec", "group")
	set(d, list, "spec", "versions")
	return d
}

// name is that of the definition.
func (w custom) name() string { return "widgets." + w.group }

// condition is the status of a condition of the definition, or "" if it has none of this type.
func (w custom) condition(t testing.TB, kind string) (status, reason string) {
	t.Helper()
	return condition(t, w.get(t, definitions+"/"+w.name()).want(t, http.StatusOK), kind)
}

// condition finds one of an object's status.
func condition(t testing.TB, a answer, kind string) (status, reason string) {
	t.Helper()
	conditions, _ := a.value(t, "status", "conditions").([]any)
	for _, entry := range conditions {
		if c := entry.(map[string]any); c["type"] == kind {
			status, _ = c["status"].(string)
			reason, _ = c["reason"].(string)
		}
	}
	return status, reason
}

// established waits until the definition is.
func (w custom) established(t testing.TB) {
	t.Helper()
	eventually(t, w.name()+" is established", func() bool {
		status, _ := w.condition(t, "Established")
		return status == "True"
	})
}

// redefine changes the definition.
func (w custom) redefine(t testing.TB, change func(spec map[string]any)) answer {
	t.Helper()
	for {
		d := w.get(t, definitions+"/"+w.name()).want(t, http.StatusOK).object(t)
		change(d["spec"].(map[string]any))
		if a := w.put(t, definitions+"/"+w.name(), d); a.Code != http.StatusConflict { // with a controller of the server
			return a
		}
	}
}

// at is the path of widgets in a version, or below that.
func (w custom) at(version string, rest ...string) string {
	return w.path(w.group+"/"+version, append([]string{"widgets"}, rest...)...)
}

// widget is an object of v1 with these fields, in YAML.
func (w custom) widget(name, fields string) map[string]any {
	object := manifest("%s", fields)
	object["apiVersion"], object["kind"] = w.group+"/v1", "Widget"
	set(object, name, "metadata", "name")
	return object
}

// create creates a widget of v1.
func (w custom) create(t testing.TB, name, fields string) answer {
	t.Helper()
	return w.post(t, w.at("v1"), w.widget(name, fields))
}

// set sets a field of an object that the test itself has made.
func set(object map[string]any, value any, fields ...string) {
	if err := unstructured.SetNestedField(object, value, fields...); err != nil {
		panic(err)
	}
}

// field is a field of an object as compact JSON, and "" if there is none.
func (a answer) field(t testing.TB, fields ...string) string {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(a.object(t), fields...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", a.request, err, a.Body)
	}
	if !found {
		return ""
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// has fails the test unless a field of the body is this, as compact JSON; "" is for a field that is not there.
func (a answer) has(t testing.TB, want string, fields ...string) answer {
	t.Helper()
	if got := a.field(t, fields...); got != want {
		t.Errorf("%s: %v is %s instead of %s", a.request, fields, got, want)
	}
	return a
}

// warns fails the test unless the answer has just these warnings.
func (a answer) warns(t testing.TB, texts ...string) answer {
	t.Helper()
	var want []string
	for _, text := range texts {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, "299 - "+string(quoted))
	}
	if got := a.Header.Values("Warning"); !slices.Equal(got, want) {
		t.Errorf("%s: the warnings are %q instead of %q", a.request, got, want)
	}
	return a
}

// run runs kubectl, which must succeed, and returns what it prints.
func run(t testing.TB, c *cluster, args ...string) string {
	t.Helper()
	output, ok := c.kubectl(t, "", args...)
	if !ok {
		t.Fatalf("kubectl %q: %s", args, output)
	}
	return output
}
