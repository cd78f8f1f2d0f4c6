package customresources

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// scaled returns a version with the subresources status and scale.
func scaled() map[string]any {
	return kit.CRDVersion("v1", `
spec: {type: object, properties: {replicas: {type: integer, minimum: 0}, color: {type: string}}}
status: {type: object, properties: {replicas: {type: integer}, selector: {type: string}, phase: {type: string}}}`,
		`subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}}`)
}

// customServing is what a definition can have in addition to its schema.
var customServing = []kit.Promise{
	{Statement: "without a status subresource, the status is an ordinary field", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", kit.AnySpec+"\nstatus: {type: object, properties: {a: {type: string}}}"))
		w.Create(t, "a", "status: {a: x}").Created(t).HasField(t, `{"a":"x"}`, "status")
		c.Patch(t, kit.MergePatch, w.At("v1", "a"), `{"status":{"a":"z"}}`).OK(t).
			HasField(t, "2", "metadata", "generation")
		c.Get(t, w.At("v1", "a", "status")).Want(t, http.StatusNotFound)
		c.Get(t, w.At("v1", "a", "scale")).Want(t, http.StatusNotFound)
	}},
	{Statement: "scale reads and writes the replicas of a custom resource", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, scaled())
		w.Create(t, "a", "spec: {replicas: 2}").Created(t)
		c.Patch(t, kit.MergePatch, w.At("v1", "a", "status"), `{"status":{"replicas":1,"selector":"app=a"}}`).OK(t)
		scale := c.Get(t, w.At("v1", "a", "scale")).OK(t).HasField(t, `"Scale"`, "kind").
			HasField(t, `"autoscaling/v1"`, "apiVersion").
			HasField(t, `{"replicas":2}`, "spec").HasField(t, `{"replicas":1,"selector":"app=a"}`, "status").Object(t)
		kit.SetField(scale, int64(5), "spec", "replicas")
		c.Put(t, w.At("v1", "a", "scale"), scale).OK(t).HasField(t, `{"replicas":5}`, "spec")
		c.Put(t, w.At("v1", "a", "scale"), scale).Conflict(t)
		c.Get(t, w.At("v1", "a")).HasField(t, `{"replicas":5}`, "spec").HasField(t, "2", "metadata", "generation")
		c.Patch(t, kit.MergePatch, w.At("v1", "a", "scale"), `{"spec":{"replicas":-1}}`).Invalid(t, "spec.replicas")
		w.Create(t, "none", "spec: {}").Created(t)
		c.Get(t, w.At("v1", "none", "scale")).Refused(t, http.StatusInternalServerError, "InternalError",
			"the spec replicas field \".spec.replicas\" does not exist")
		c.Get(t, w.At("v1", "missing", "scale")).Want(t, http.StatusNotFound)
		out := kit.MustKubectl(t, c, "scale", w.Name()+"/a", "--replicas=7")
		if !strings.Contains(out, "a scaled") {
			t.Errorf("kubectl scale prints %s", out)
		}
		c.Get(t, w.At("v1", "a")).HasField(t, `{"replicas":7}`, "spec")
	}},
	{Statement: "invalid paths of scale are rejected", Proof: func(t *testing.T, c *kit.Cluster) {
		for path, part := range map[string]string{
			".status.replicas": "should be a json path under .spec", "spec.replicas": "must be a simple json path starting with .", "": "Required value",
		} {
			v := kit.CRDVersion("v1", kit.AnySpec, `subresources: {scale: {statusReplicasPath: .status.replicas, specReplicasPath: "`+path+`"}}`)
			c.Post(t, kit.Definitions, c.CustomResource().Definition(v)).Invalid(t, "specReplicasPath: ", part)
		}
	}},
	{Statement: "lists and watches select by selectable fields", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.DefineVersions(t, kit.CRDVersion("v1", "spec: {type: object, properties: {color: {type: string}, size: {type: integer}, on: {type: boolean}, other: {type: string}}}",
			"selectableFields: [{jsonPath: .spec.color}, {jsonPath: .spec.size}]"))
		w.Create(t, "a", "spec: {color: red, size: 1, other: x}").Created(t)
		w.Create(t, "b", "spec: {color: green, size: 1}").Created(t)
		w.Create(t, "c", "{}").Created(t)
		for selector, want := range map[string]string{
			"spec.color%3Dred": "a", "spec.color!%3Dred": "b c", "spec.size%3D1": "a b", "spec.size%3D1,spec.color%3Dgreen": "b",
			"spec.color%3D": "c", "metadata.name%3Db": "b", "metadata.name%3Db,spec.color%3Dred": "",
		} {
			if got := strings.Join(c.Get(t, w.At("v1")+"?fieldSelector="+selector).OK(t).Names(t), " "); got != want {
				t.Errorf("%s selects %q instead of %q", selector, got, want)
			}
		}
		c.Get(t, w.At("v1")+"?fieldSelector=spec.other%3Dx").BadRequest(t, "field label not supported: spec.other")
		list := c.Get(t, w.At("v1"))
		watch := c.Watch(t, w.At("v1")+"?watch=true&fieldSelector=spec.color%3Dred&resourceVersion="+list.ResourceVersion(t))
		c.Patch(t, kit.MergePatch, w.At("v1", "b"), `{"spec":{"color":"red"}}`).OK(t)
		c.Patch(t, kit.MergePatch, w.At("v1", "c"), `{"spec":{"size":5}}`).OK(t)
		c.Patch(t, kit.MergePatch, w.At("v1", "a"), `{"spec":{"color":"blue"}}`).OK(t)
		if e := watch.Next(t); e.Type != "ADDED" || e.Name() != "b" {
			t.Errorf("the event of a newly selected object is %s %s", e.Type, e.Name())
		}
		if e := watch.Next(t); e.Type != "DELETED" || e.Name() != "a" {
			t.Errorf("the event of a no longer selected object is %s %s", e.Type, e.Name())
		}
		if names := kit.MustKubectl(t, c, "get", w.Name(), "--field-selector=spec.color=red", "-o", "name"); strings.TrimSpace(names) != "widget."+w.Group+"/b" {
			t.Errorf("kubectl get --field-selector prints %s", names)
		}
	}},
	{Statement: "invalid selectable fields are rejected", Proof: func(t *testing.T, c *kit.Cluster) {
		for path, part := range map[string]string{
			".spec.list": "must point to a field of type string, boolean or integer", ".spec.missing": "is an invalid path",
			".metadata.name": "is an invalid path", "spec": "expected [ or .",
		} {
			v := kit.CRDVersion("v1", "spec: {type: object, properties: {list: {type: array, items: {type: string}}}}",
				`selectableFields: [{jsonPath: "`+path+`"}]`)
			c.Post(t, kit.Definitions, c.CustomResource().Definition(v)).Invalid(t, "selectableFields[0].jsonPath: Invalid value", part)
		}
	}},
	{Statement: "discovery includes a custom resource as defined, until the definition is deleted", Proof: func(t *testing.T, c *kit.Cluster) {
		w := c.CustomResource()
		d := w.Definition(scaled())
		kit.SetField(d, []any{"wg"}, "spec", "names", "shortNames")
		kit.SetField(d, []any{"all"}, "spec", "names", "categories")
		c.Post(t, kit.Definitions, d).Created(t)
		w.Established(t)
		harness.Eventually(t, "the group exists", func() bool { return c.Get(t, "/apis/"+w.Group).Code == http.StatusOK })
		c.Get(t, "/apis/"+w.Group).HasField(t, `{"groupVersion":"`+w.Group+`/v1","version":"v1"}`, "preferredVersion")
		legacy := c.Get(t, "/apis/"+w.Group+"/v1").OK(t)
		for _, part := range []string{
			`"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget"`, `"shortNames":["wg"],"categories":["all"]`,
			`"name":"widgets/status"`, `"name":"widgets/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale"`,
		} {
			if !strings.Contains(string(legacy.Body), part) {
				t.Errorf("discovery lacks %s:\n%s", part, legacy.Body)
			}
		}
		listed := func() bool {
			aggregated := c.Send(t, http.MethodGet, "/apis",
				kit.Header{"Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}, nil)
			return strings.Contains(string(aggregated.Body), `"`+w.Group+`"`) && strings.Contains(string(c.Get(t, "/apis").Body), `"`+w.Group+`"`)
		}
		harness.Eventually(t, "both forms of discovery list it", listed)
		c.Delete(t, kit.Definitions+"/"+w.Name()).OK(t)
		harness.Eventually(t, "it is removed from both", func() bool { return !listed() && c.Get(t, "/apis/"+w.Group).Code == http.StatusNotFound })
	}},
}
