package concepts

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// scaled is a version with the subresources status and scale.
func scaled() map[string]any {
	return version("v1", `
spec: {type: object, properties: {replicas: {type: integer, minimum: 0}, color: {type: string}}}
status: {type: object, properties: {replicas: {type: integer}, selector: {type: string}, phase: {type: string}}}`,
		`subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}}`)
}

// customServing is what a definition can have beside its schema.
var customServing = []promise{
	{"without a status subresource the status is a field like others", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec+"\nstatus: {type: object, properties: {a: {type: string}}}"))
		w.create(t, "a", "status: {a: x}").want(t, http.StatusCreated).has(t, `{"a":"x"}`, "status")
		c.patch(t, mergePatch, w.at("v1", "a"), `{"status":{"a":"z"}}`).want(t, http.StatusOK).
			has(t, "2", "metadata", "generation")
		c.get(t, w.at("v1", "a", "status")).want(t, http.StatusNotFound)
		c.get(t, w.at("v1", "a", "scale")).want(t, http.StatusNotFound)
	}},
	{"with a status subresource each of spec and status is written at its own place", func(t *testing.T, c *cluster) {
		w := c.define(t, scaled())
		object := w.create(t, "a", "spec: {color: red}\nstatus: {phase: x}").want(t, http.StatusCreated).
			has(t, "", "status").object(t)
		set(object, "green", "spec", "color")
		set(object, "done", "status", "phase")
		set(object, map[string]any{"a": "b"}, "metadata", "labels")
		changed := c.put(t, w.at("v1", "a", "status"), object).want(t, http.StatusOK).has(t, `{"color":"red"}`, "spec").
			has(t, `{"phase":"done"}`, "status").
			has(t, "", "metadata", "labels").has(t, "1", "metadata", "generation").object(t)
		set(changed, "green", "spec", "color")
		set(changed, "other", "status", "phase")
		c.put(t, w.at("v1", "a"), changed).want(t, http.StatusOK).has(t, `{"color":"green"}`, "spec").
			has(t, `{"phase":"done"}`, "status").has(t, "2", "metadata", "generation")
		c.get(t, w.at("v1", "a", "status")).want(t, http.StatusOK).has(t, `"done"`, "status", "phase").
			has(t, `"green"`, "spec", "color")
		c.patch(t, mergePatch, w.at("v1", "a", "status"), `{"status":{"phase":5}}`).
			invalid(t, "status.phase")
		c.patch(t, mergePatch, w.at("v1", "a"), `{"metadata":{"labels":{"a":"b"}}}`).want(t, http.StatusOK).
			has(t, "2", "metadata", "generation")
		c.post(t, w.at("v1", "a", "status"), object).want(t, http.StatusMethodNotAllowed)
	}},
	{"scale reads and writes the replicas of a custom resource", func(t *testing.T, c *cluster) {
		w := c.define(t, scaled())
		w.create(t, "a", "spec: {replicas: 2}").want(t, http.StatusCreated)
		c.patch(t, mergePatch, w.at("v1", "a", "status"), `{"status":{"replicas":1,"selector":"app=a"}}`).
			want(t, http.StatusOK)
		scale := c.get(t, w.at("v1", "a", "scale")).want(t, http.StatusOK).has(t, `"Scale"`, "kind").
			has(t, `"autoscaling/v1"`, "apiVersion").
			has(t, `{"replicas":2}`, "spec").has(t, `{"replicas":1,"selector":"app=a"}`, "status").object(t)
		set(scale, int64(5), "spec", "replicas")
		c.put(t, w.at("v1", "a", "scale"), scale).want(t, http.StatusOK).has(t, `{"replicas":5}`, "spec")
		c.put(t, w.at("v1", "a", "scale"), scale).refused(t, http.StatusConflict, "Conflict")
		c.get(t, w.at("v1", "a")).has(t, `{"replicas":5}`, "spec").has(t, "2", "metadata", "generation")
		c.patch(t, mergePatch, w.at("v1", "a", "scale"), `{"spec":{"replicas":-1}}`).
			invalid(t, "spec.replicas")
		w.create(t, "none", "spec: {}").want(t, http.StatusCreated)
		c.get(t, w.at("v1", "none", "scale")).refused(t, http.StatusInternalServerError, "InternalError",
			"the spec replicas field \".spec.replicas\" does not exist")
		c.get(t, w.at("v1", "missing", "scale")).want(t, http.StatusNotFound)
		out := run(t, c, "scale", w.name()+"/a", "--replicas=7")
		if !strings.Contains(out, "a scaled") {
			t.Errorf("kubectl scale prints %s", out)
		}
		c.get(t, w.at("v1", "a")).has(t, `{"replicas":7}`, "spec")
	}},
	{"paths of scale that can not be are refused", func(t *testing.T, c *cluster) {
		for path, part := range map[string]string{
			".status.replicas": "should be a json path under .spec", "spec.replicas": "must be a simple json path starting with .", "": "Required value",
		} {
			v := version("v1", anySpec, `subresources: {scale: {statusReplicasPath: .status.replicas, specReplicasPath: "`+path+`"}}`)
			c.post(t, definitions, c.custom().definition(v)).
				invalid(t, "specReplicasPath: ", part)
		}
	}},
	{"a Table has the additional printer columns", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", "spec: {type: object, properties: {a: {type: string}, count: {type: integer}, when: {type: string}, list: {type: array, items: {type: string}}}}", `
additionalPrinterColumns:
- {name: A, type: string, jsonPath: .spec.a, description: the a}
- {name: Number, type: integer, jsonPath: .spec.count, priority: 1}
- {name: Since, type: date, jsonPath: .spec.when}
- {name: List, type: string, jsonPath: ".spec.list[*]"}`))
		w.create(t, "a", "spec: {a: x, count: 5, when: '2020-01-01T00:00:00Z', list: [p, q]}").want(t, http.StatusCreated)
		w.create(t, "b", "spec: {}").want(t, http.StatusCreated)
		table := c.send(t, http.MethodGet, w.at("v1"), header{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"},
			nil).want(t, http.StatusOK)
		var names []string
		for _, column := range table.value(t, "columnDefinitions").([]any) {
			names = append(names, column.(map[string]any)["name"].(string))
		}
		if !slices.Equal(names, []string{"Name", "A", "Number", "Since", "List"}) {
			t.Errorf("the columns are %q", names)
		}
		rows := table.value(t, "rows").([]any)
		cells := rows[0].(map[string]any)["cells"].([]any)
		if cells[0] != "a" || cells[1] != "x" || cells[2] != 5.0 || cells[4] != "p" {
			t.Errorf("the cells are %v", cells)
		}
		if cells := rows[1].(map[string]any)["cells"].([]any); cells[1] != "" && cells[1] != nil {
			t.Errorf("the cells of what has no such fields are %v", cells)
		}
		lines := strings.Split(run(t, c, "get", w.name()), "\n")
		if !slices.Equal(strings.Fields(lines[0]), []string{"NAME", "A", "SINCE", "LIST"}) {
			t.Errorf("kubectl get prints\n%s", lines[0])
		}
		if wide := run(t, c, "get", w.name(), "-o", "wide"); !strings.Contains(strings.Split(wide, "\n")[0], " NUMBER ") {
			t.Errorf("kubectl get -o wide prints\n%s", wide)
		}
	}},
	{"a Table has the age where no printer columns are given", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", anySpec))
		w.create(t, "a", "{}").want(t, http.StatusCreated)
		table := c.send(t, http.MethodGet, w.at("v1", "a"),
			header{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}, nil).want(t, http.StatusOK)
		if columns := table.field(t, "columnDefinitions"); !strings.Contains(columns, `"name":"Age"`) || strings.Count(columns, `"name":`) != 2 {
			t.Errorf("the columns are %s", columns)
		}
	}},
	{"lists and watches select by selectable fields", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", "spec: {type: object, properties: {color: {type: string}, size: {type: integer}, on: {type: boolean}, other: {type: string}}}",
			"selectableFields: [{jsonPath: .spec.color}, {jsonPath: .spec.size}]"))
		w.create(t, "a", "spec: {color: red, size: 1, other: x}").want(t, http.StatusCreated)
		w.create(t, "b", "spec: {color: green, size: 1}").want(t, http.StatusCreated)
		w.create(t, "c", "{}").want(t, http.StatusCreated)
		for selector, want := range map[string]string{
			"spec.color%3Dred": "a", "spec.color!%3Dred": "b c", "spec.size%3D1": "a b", "spec.size%3D1,spec.color%3Dgreen": "b",
			"spec.color%3D": "c", "metadata.name%3Db": "b", "metadata.name%3Db,spec.color%3Dred": "",
		} {
			if got := strings.Join(c.get(t, w.at("v1")+"?fieldSelector="+selector).want(t, http.StatusOK).names(t), " "); got != want {
				t.Errorf("%s selects %q instead of %q", selector, got, want)
			}
		}
		c.get(t, w.at("v1")+"?fieldSelector=spec.other%3Dx").
			refused(t, http.StatusBadRequest, "BadRequest", "field label not supported: spec.other")
		list := c.get(t, w.at("v1"))
		watch := c.watch(t, w.at("v1")+"?watch=true&fieldSelector=spec.color%3Dred&resourceVersion="+list.version(t))
		c.patch(t, mergePatch, w.at("v1", "b"), `{"spec":{"color":"red"}}`).want(t, http.StatusOK)
		c.patch(t, mergePatch, w.at("v1", "c"), `{"spec":{"size":5}}`).want(t, http.StatusOK)
		c.patch(t, mergePatch, w.at("v1", "a"), `{"spec":{"color":"blue"}}`).want(t, http.StatusOK)
		if e := watch.next(t); e.Type != "ADDED" || e.name() != "b" {
			t.Errorf("what comes to be selected is %s %s", e.Type, e.name())
		}
		if e := watch.next(t); e.Type != "DELETED" || e.name() != "a" {
			t.Errorf("what is selected no longer is %s %s", e.Type, e.name())
		}
		if names := run(t, c, "get", w.name(), "--field-selector=spec.color=red", "-o", "name"); strings.TrimSpace(names) != "widget."+w.group+"/b" {
			t.Errorf("kubectl get --field-selector prints %s", names)
		}
	}},
	{"selectable fields that can not be are refused", func(t *testing.T, c *cluster) {
		for path, part := range map[string]string{
			".spec.list": "must point to a field of type string, boolean or integer", ".spec.missing": "is an invalid path",
			".metadata.name": "is an invalid path", "spec": "expected [ or .",
		} {
			v := version("v1", "spec: {type: object, properties: {list: {type: array, items: {type: string}}}}",
				`selectableFields: [{jsonPath: "`+path+`"}]`)
			c.post(t, definitions, c.custom().definition(v)).
				invalid(t, "selectableFields[0].jsonPath: Invalid value", part)
		}
	}},
	{"discovery has a custom resource as its definition says, and no longer when that is gone", func(t *testing.T, c *cluster) {
		w := c.custom()
		d := w.definition(scaled())
		set(d, []any{"wg"}, "spec", "names", "shortNames")
		set(d, []any{"all"}, "spec", "names", "categories")
		c.post(t, definitions, d).want(t, http.StatusCreated)
		w.established(t)
		eventually(t, "the group is there", func() bool { return c.get(t, "/apis/"+w.group).Code == http.StatusOK })
		c.get(t, "/apis/"+w.group).has(t, `{"groupVersion":"`+w.group+`/v1","version":"v1"}`, "preferredVersion")
		legacy := c.get(t, "/apis/"+w.group+"/v1").want(t, http.StatusOK)
		for _, part := range []string{
			`"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget"`, `"shortNames":["wg"],"categories":["all"]`,
			`"name":"widgets/status"`, `"name":"widgets/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale"`,
		} {
			if !strings.Contains(string(legacy.Body), part) {
				t.Errorf("discovery lacks %s:\n%s", part, legacy.Body)
			}
		}
		listed := func() bool {
			aggregated := c.send(t, http.MethodGet, "/apis",
				header{"Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}, nil)
			return strings.Contains(string(aggregated.Body), `"`+w.group+`"`) && strings.Contains(string(c.get(t, "/apis").Body), `"`+w.group+`"`)
		}
		eventually(t, "both forms of discovery list it", listed)
		c.delete(t, definitions+"/"+w.name()).want(t, http.StatusOK)
		eventually(t, "it is gone from both", func() bool { return !listed() && c.get(t, "/apis/"+w.group).Code == http.StatusNotFound })
	}},
	{"kubectl finds a custom resource by its names and categories", func(t *testing.T, c *cluster) {
		w := c.custom()
		d := w.definition(version("v1", anySpec))
		short := strings.ReplaceAll(c.namespace, "-", "") // of this promise alone, as its server has other widgets
		set(d, manifest("{plural: widgets, singular: s%[1]s, kind: S%[1]s, shortNames: [x%[1]s], categories: [c%[1]s]}",
			short), "spec", "names")
		c.post(t, definitions, d).want(t, http.StatusCreated)
		w.established(t)
		c.post(t, w.at("v1"), manifest("{apiVersion: %s/v1, kind: S%s, metadata: {name: found}}", w.group, short)).
			want(t, http.StatusCreated)
		for _, name := range []string{"s" + short, "x" + short, "c" + short, "widgets.v1." + w.group} {
			var out string
			eventually(t, "kubectl get "+name+" finds it", func() bool {
				var ok bool
				out, ok = c.kubectl(t, "", "get", name, "-o", "name")
				return ok
			})
			if strings.TrimSpace(out) != "s"+short+"."+w.group+"/found" {
				t.Errorf("kubectl get %s prints %s", name, out)
			}
		}
	}},
	{"OpenAPI and kubectl explain have the schema of a custom resource", func(t *testing.T, c *cluster) {
		w := c.define(t, version("v1", "spec: {type: object, description: what is wanted, required: [color], properties: {color: {type: string, description: of the rainbow, enum: [red]}}}"))
		c.get(t, "/openapi/v3").want(t, http.StatusOK)
		var v3 answer
		eventually(t, "OpenAPI v3 has it", func() bool {
			v3 = c.get(t, "/openapi/v3/apis/"+w.group+"/v1")
			return v3.Code == http.StatusOK
		})
		for _, part := range []string{"of the rainbow", `"x-kubernetes-group-version-kind"`, "/namespaces/{namespace}/widgets/{name}"} {
			if !strings.Contains(string(v3.Body), part) {
				t.Errorf("OpenAPI v3 lacks %s", part)
			}
		}
		eventually(t, "OpenAPI v2 has it", func() bool {
			return strings.Contains(string(c.get(t, "/openapi/v2").Body), "/apis/"+w.group+"/v1/namespaces/{namespace}/widgets/{name}")
		})
		out := run(t, c, "explain", w.name()+".spec")
		for _, part := range []string{"KIND:       Widget", "what is wanted", "color\t<string> -required-", "enum: red", "of the rainbow"} {
			if !strings.Contains(out, part) {
				t.Errorf("kubectl explain lacks %q:\n%s", part, out)
			}
		}
	}},
}
