package kit

import (
	"fmt"
	"maps"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sqube/sqube/test/harness"
)

// Definitions is the path of all definitions of custom resources.
const Definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// CustomResource is a custom resource, widgets, in the promise's own group.
type CustomResource struct {
	*Cluster
	Group string
}

// CustomResource returns the resource widgets, which is not defined yet.
func (c *Cluster) CustomResource() CustomResource {
	return CustomResource{c, c.Namespace + ".example.com"}
}

// DefineVersions defines widgets with these versions and waits until they are served. The first one is the storage version
// unless another is marked as such.
func (c *Cluster) DefineVersions(t testing.TB, versions ...map[string]any) CustomResource {
	t.Helper()
	w := c.CustomResource()
	c.Post(t, Definitions, w.Definition(versions...)).Created(t)
	w.Established(t)
	return w
}

// CRDVersion returns a version of a definition: its name, the properties of its objects, and additional fields, in YAML.
func CRDVersion(name, properties string, fields ...string) map[string]any {
	v := map[string]any{
		"name": name, "served": true,
		"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object",
			"properties": Manifest("%s", properties)}},
	}
	for _, f := range fields {
		maps.Copy(v, Manifest("%s", f))
	}
	return v
}

// Definition returns the definition of widgets.
func (w CustomResource) Definition(versions ...map[string]any) map[string]any {
	stored := false
	list := make([]any, len(versions))
	for i, v := range versions {
		stored = stored || v["storage"] == true
		list[i] = v
	}
	for i, v := range versions {
		v["storage"] = v["storage"] == true || !stored && i == 0
	}
	d := Manifest(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, spec: {
		scope: Namespaced, names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}}}`)
	d["metadata"] = map[string]any{"name": w.Name()}
	SetField(d, w.Group, "spec", "group")
	SetField(d, list, "spec", "versions")
	return d
}

// Name returns the name of the definition.
func (w CustomResource) Name() string { return "widgets." + w.Group }

// Condition returns the status and reason of a condition of the definition, "" if it has none of this type.
func (w CustomResource) Condition(t testing.TB, kind string) (status, reason string) {
	t.Helper()
	return Condition(t, w.Get(t, Definitions+"/"+w.Name()).OK(t), kind)
}

// Condition returns a condition in an object's status.
func Condition(t testing.TB, a Answer, kind string) (status, reason string) {
	t.Helper()
	conditions, _ := a.Value(t, "status", "conditions").([]any)
	for _, entry := range conditions {
		if c := entry.(map[string]any); c["type"] == kind {
			status, _ = c["status"].(string)
			reason, _ = c["reason"].(string)
		}
	}
	return status, reason
}

// Established waits until the definition is established and served. The handler of custom resources hears of the condition a
// moment after it is there, at the same time as the versions' documents of discovery.
func (w CustomResource) Established(t testing.TB) {
	t.Helper()
	harness.Eventually(t, w.Name()+" is established", func() bool {
		status, _ := w.Condition(t, "Established")
		return status == "True"
	})
	versions, _ := w.Get(t, Definitions+"/"+w.Name()).OK(t).Value(t, "spec", "versions").([]any)
	for _, entry := range versions {
		if v := entry.(map[string]any); v["served"] == true {
			path := fmt.Sprintf("/apis/%s/%s", w.Group, v["name"])
			harness.Eventually(t, path+" is served", func() bool { return w.Get(t, path).Code == http.StatusOK })
		}
	}
}

// Redefine changes the definition.
func (w CustomResource) Redefine(t testing.TB, change func(spec map[string]any)) Answer {
	t.Helper()
	for {
		d := w.Get(t, Definitions+"/"+w.Name()).OK(t).Object(t)
		change(d["spec"].(map[string]any))
		if a := w.Put(t, Definitions+"/"+w.Name(), d); a.Code != http.StatusConflict { // with a controller of the server
			return a
		}
	}
}

// At returns the path of widgets in a version, or a path below that.
func (w CustomResource) At(version string, rest ...string) string {
	return w.Path(w.Group+"/"+version, append([]string{"widgets"}, rest...)...)
}

// Widget returns an object of v1 with these fields, in YAML.
func (w CustomResource) Widget(name, fields string) map[string]any {
	object := Manifest("%s", fields)
	object["apiVersion"], object["kind"] = w.Group+"/v1", "Widget"
	SetField(object, name, "metadata", "name")
	return object
}

// Create creates a widget in v1.
func (w CustomResource) Create(t testing.TB, name, fields string) Answer {
	t.Helper()
	return w.Post(t, w.At("v1"), w.Widget(name, fields))
}

// SetField sets a field of an object built by the test itself.
func SetField(object map[string]any, value any, fields ...string) {
	if err := unstructured.SetNestedField(object, value, fields...); err != nil {
		panic(err)
	}
}

// AnySpec allows anything in the field spec of a version.
const AnySpec = "spec: {type: object, x-kubernetes-preserve-unknown-fields: true}"
