// Package tables tests sqube against the documentation of Tables and of partial object metadata.
package tables

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }

// Section "Receiving resources as Tables", and partial object metadata.
func TestTables(t *testing.T) {
	kit.Prove(t, nil, slices.Concat(tables, partialMetadata)...)
}

// The forms in JSON; TestMediaTypes tests other media types.
var (
	tableV1      = kit.AsTable(runtime.ContentTypeJSON, "v1")
	tableV1beta1 = kit.AsTable(runtime.ContentTypeJSON, "v1beta1")
)

// columns returns the names of a Table's columns, prefixed with the priority if that is not 0.
func columns(t testing.TB, a kit.Answer) string {
	t.Helper()
	definitions, _ := a.Value(t, "columnDefinitions").([]any)
	var names []string
	for _, definition := range definitions {
		d := definition.(map[string]any)
		name := fmt.Sprint(d["name"])
		if priority := d["priority"]; priority != 0.0 {
			name = fmt.Sprint(priority, ":", name)
		}
		if d["type"] == "" || d["description"] == "" {
			t.Errorf("%s: a column is %v", a.Request, d)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// tableRows returns the cells of a Table, without ages.
func tableRows(t testing.TB, a kit.Answer) [][]any {
	t.Helper()
	columns := strings.Split(columns(t, a), ", ")
	rows := [][]any{}
	all, _ := a.Value(t, "rows").([]any)
	for _, row := range all {
		var cells []any
		for i, cell := range row.(map[string]any)["cells"].([]any) {
			if columns[i] != "Age" && columns[i] != "Created At" {
				cells = append(cells, cell)
			}
		}
		rows = append(rows, cells)
	}
	return rows
}

// rowObjects returns the objects of a Table's rows.
func rowObjects(t testing.TB, a kit.Answer) []map[string]any {
	t.Helper()
	var objects []map[string]any
	all, _ := a.Value(t, "rows").([]any)
	for _, row := range all {
		object, _ := row.(map[string]any)["object"].(map[string]any)
		objects = append(objects, object)
	}
	return objects
}

var tables = []kit.Promise{
	{Statement: "every resource that can be listed can be requested as a Table, in both versions", Proof: func(t *testing.T, c *kit.Cluster) {
		all := kit.Must(c.Kube.Discovery().ServerPreferredResources())(t)
		for _, group := range all {
			for _, resource := range group.APIResources {
				if !slices.Contains(resource.Verbs, "list") || strings.Contains(group.GroupVersion, ".example.com/") {
					continue
				}
				for accept, version := range map[string]string{tableV1: "meta.k8s.io/v1", tableV1beta1: "meta.k8s.io/v1beta1"} {
					table := c.GetAs(t, accept, c.ClusterPath(group.GroupVersion, resource.Name)).OK(t)
					if table.Text(t, "kind") != "Table" || table.Text(t, "apiVersion") != version || table.Header.Get("Content-Type") != "application/json" {
						t.Errorf("%s: %s %s", table.Request, table.Text(t, "kind"), table.Text(t, "apiVersion"))
					}
					named := slices.ContainsFunc(table.Value(t, "columnDefinitions").([]any), func(definition any) bool {
						d := definition.(map[string]any)
						return d["name"] == "Name" && d["type"] == "string" && d["format"] == "name"
					})
					// upstream gives the names of storageversionmigrations no format, and those of changes are revisions
					if !named && resource.Name != "storageversionmigrations" && resource.Name != "changes" {
						t.Errorf("%s has no column for the names: %s", table.Request, columns(t, table))
					}
				}
			}
		}
	}},
	{Statement: "built-in resources have their own columns, and those with a priority are for wide output", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		c.Post(t, c.Path("v1", "pods"), kit.Pod("p")).Created(t)
		c.Post(t, c.Path("v1", "services"), kit.With(kit.Service("s"), "None", "spec", "clusterIP")).Created(t)
		c.Post(t, c.Path("apps/v1", "deployments"), kit.Deployment("d")).Created(t)
		c.Post(t, c.Path("v1", "secrets"), kit.Secret("x")).Created(t)
		c.Post(t, c.ClusterPath("v1", "nodes"), kit.Manifest("{metadata: {name: %s}}", c.Namespace)).Created(t)
		for _, want := range []struct {
			path, columns string
			cells         []any
		}{
			{c.Path("v1", "pods"), "Name, Ready, Status, Restarts, Age, 1:IP, 1:Node, 1:Nominated Node, 1:Readiness Gates", []any{"p", "0/1", "Pending", "0", "<none>", "node", "<none>", "<none>"}},
			{c.Path("v1", "services"), "Name, Type, Cluster-IP, External-IP, Port(s), Age, 1:Selector", []any{"s", "ClusterIP", "None", "<none>", "80/TCP", "app=a"}},
			{c.Path("apps/v1", "deployments"), "Name, Ready, Up-to-date, Available, Age, 1:Containers, 1:Images, 1:Selector", []any{"d", "0/3", 0.0, 0.0, "c", "i", "app=d"}},
			{c.Path("v1", "secrets"), "Name, Type, Data, Age", []any{"x", "Opaque", 0.0}},
			{c.ClusterPath("v1", "nodes", c.Namespace), "Name, Status, Roles, Age, Version, 1:Internal-IP, 1:External-IP, 1:OS-Image, 1:Kernel-Version, 1:Container-Runtime",
				[]any{c.Namespace, "Unknown", "<none>", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"}},
			{c.ClusterPath("v1", "namespaces", c.Namespace), "Name, Status, Age", []any{c.Namespace, "Active"}},
		} {
			table := c.GetAs(t, tableV1, want.path).OK(t)
			kit.Equal(t, columns(t, table), want.columns)
			kit.Equal(t, tableRows(t, table), [][]any{want.cells})
		}
	}},
	{Statement: "a Table has the metadata of the list, and pages", Proof: func(t *testing.T, c *kit.Cluster) {
		path := c.Path("v1", "secrets")
		for _, name := range []string{"a", "b", "c"} {
			c.Post(t, path, kit.Secret(name)).Created(t)
		}
		first := c.GetAs(t, tableV1, path+"?limit=2").OK(t)
		kit.Equal(t, tableRows(t, first), [][]any{{"a", "Opaque", 0.0}, {"b", "Opaque", 0.0}})
		kit.Equal(t, first.Value(t, "metadata", "remainingItemCount"), any(1.0))
		second := c.GetAs(t, tableV1, path+"?limit=2&continue="+first.Text(t, "metadata", "continue")).OK(t)
		kit.Equal(t, tableRows(t, second), [][]any{{"c", "Opaque", 0.0}})
		kit.Equal(t, columns(t, second), columns(t, first))
		kit.Equal(t, []any{second.ResourceVersion(t), second.Text(t, "metadata", "continue"), second.Value(t, "metadata", "remainingItemCount")}, []any{first.ResourceVersion(t), "", nil})
		// A token works for any form.
		kit.Equal(t, c.NextPage(t, path+"?", first).Names(t), []string{"c"})
		kit.Equal(t, tableRows(t, c.GetAs(t, tableV1, path+"?labelSelector=none").OK(t)), [][]any{})
		kit.Equal(t, len(tableRows(t, c.GetAs(t, tableV1, path+"?resourceVersionMatch=Exact&resourceVersion="+first.ResourceVersion(t)).OK(t))), 3)
	}},
	{Statement: "a Table of one object has its row and its resourceVersion", Proof: func(t *testing.T, c *kit.Cluster) {
		created := c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t)
		table := c.GetAs(t, tableV1, c.Path("v1", "secrets", "a")).OK(t)
		kit.Equal(t, tableRows(t, table), [][]any{{"a", "Opaque", 0.0}})
		kit.Equal(t, table.ResourceVersion(t), created.ResourceVersion(t))
		c.GetAs(t, tableV1, c.Path("v1", "secrets", "none")).NotFound(t, `secrets "none" not found`)
	}},
	{Statement: "includeObject selects what a row includes: nothing, the metadata or the whole object", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "secrets"), kit.With(kit.Secret("a"), map[string]string{"l": "1"}, "metadata", "labels")).Created(t)
		version := c.DefineWidgets(t, kit.AnySchema)
		c.Post(t, c.Path(version, "widgets"), kit.With(kit.Widget(version, "a"), map[string]string{"l": "1"}, "metadata", "labels")).Created(t)
		for path, kind := range map[string][]any{c.Path("v1", "secrets"): {"v1", "Secret"}, c.Path(version, "widgets"): {version, "Widget"}} {
			for accept, metaVersion := range map[string]string{tableV1: "meta.k8s.io/v1", tableV1beta1: "meta.k8s.io/v1beta1"} {
				for query, want := range map[string][]any{
					"": {metaVersion, "PartialObjectMetadata"}, "includeObject=": {metaVersion, "PartialObjectMetadata"}, "includeObject=Metadata": {metaVersion, "PartialObjectMetadata"},
					"includeObject=Object": kind, "includeObject=None": nil,
				} {
					for _, read := range []string{path + "?" + query, path + "/a?" + query, path + "?limit=1&" + query} {
						object := rowObjects(t, c.GetAs(t, accept, read).OK(t))[0]
						if want == nil {
							kit.Equal(t, object, map[string]any(nil))
							continue
						}
						kit.Equal(t, []any{object["apiVersion"], object["kind"]}, want)
						kit.Equal(t, object["metadata"].(map[string]any)["labels"], any(map[string]any{"l": "1"}))
						if want[1] == "PartialObjectMetadata" && len(object) != 3 {
							t.Errorf("%s: the object has more than metadata: %v", read, object)
						}
					}
				}
			}
			c.GetAs(t, tableV1, path+"?includeObject=Everything").BadRequest(t, `includeObject: Invalid value: "Everything": must be 'Metadata', 'Object', 'None', or empty`)
		}
	}},
	{Statement: "a custom resource without columns has name and age", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.DefineWidgets(t, kit.AnySchema)
		c.Post(t, c.Path(version, "widgets"), kit.Widget(version, "a")).Created(t)
		for _, accept := range []string{tableV1, tableV1beta1} {
			table := c.GetAs(t, accept, c.Path(version, "widgets")).OK(t)
			kit.Equal(t, columns(t, table), "Name, Age")
			kit.Equal(t, tableRows(t, table), [][]any{{"a"}})
		}
	}},
	{Statement: "a custom resource has the columns of its definition, separately for each version", Proof: func(t *testing.T, c *kit.Cluster) {
		schema := `{spec: {type: object, properties: {size: {type: integer}, ratio: {type: number}, ready: {type: boolean}, name: {type: string}, born: {type: string}, list: {type: array, items: {type: string}}}}}`
		w := c.DefineVersions(t,
			kit.CRDVersion("v1", schema, `additionalPrinterColumns: [
				{name: Size, type: integer, jsonPath: .spec.size, description: How large it is, format: int32}, {name: Ratio, type: number, jsonPath: .spec.ratio},
				{name: Ready, type: boolean, jsonPath: .spec.ready}, {name: Nickname, type: string, jsonPath: .spec.name, priority: 1},
				{name: Born, type: date, jsonPath: .spec.born}, {name: Missing, type: string, jsonPath: .spec.nothing},
				{name: List, type: string, jsonPath: ".spec.list[*]"}]`),
			kit.CRDVersion("v2", schema, `additionalPrinterColumns: [{name: Age, type: date, jsonPath: .metadata.creationTimestamp}]`))
		w.Create(t, "a", `spec: {size: 3, ratio: 0.5, ready: true, name: x, born: "2001-01-01T00:00:00Z", list: [p, q]}`).Created(t)
		w.Create(t, "b", `{}`).Created(t)
		table := c.GetAs(t, tableV1, w.At("v1")).OK(t)
		kit.Equal(t, columns(t, table), "Name, Size, Ratio, Ready, 1:Nickname, Born, Missing, List")
		rows := tableRows(t, table)
		rows[0][5] = strings.TrimLeft(rows[0][5].(string), "0123456789") // the age grows
		kit.Equal(t, rows, [][]any{{"a", 3.0, 0.5, true, "x", "y", nil, "p"}, {"b", nil, nil, nil, nil, nil, nil, nil}})
		size := table.Value(t, "columnDefinitions").([]any)[1]
		kit.Equal(t, size, any(map[string]any{"name": "Size", "type": "integer", "format": "int32", "description": "How large it is", "priority": 0.0}))
		second := c.GetAs(t, tableV1, w.At("v2")).OK(t)
		kit.Equal(t, columns(t, second), "Name, Age")
		kit.Equal(t, tableRows(t, second), [][]any{{"a"}, {"b"}})
		narrow, _, _ := strings.Cut(kit.MustKubectl(t, c, "get", "widgets.v1."+w.Group), "\n")
		kit.Equal(t, strings.Fields(narrow), []string{"NAME", "SIZE", "RATIO", "READY", "BORN", "MISSING", "LIST"})
		wide, _, _ := strings.Cut(kit.MustKubectl(t, c, "get", "widgets.v1."+w.Group, "-o", "wide"), "\n")
		kit.Equal(t, strings.Fields(wide), []string{"NAME", "SIZE", "RATIO", "READY", "NICKNAME", "BORN", "MISSING", "LIST"})
	}},
	{Statement: "what is not a resource has no Table", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, path := range []string{"/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1"} {
			c.GetAs(t, tableV1, path).Want(t, http.StatusNotAcceptable)
		}
	}},
	{Statement: "of several forms in one Accept, the first supported one is sent", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "secrets"), kit.Secret("a")).Created(t)
		version := c.DefineWidgets(t, kit.AnySchema)
		c.Post(t, c.Path(version, "widgets"), kit.Widget(version, "a")).Created(t)
		const noSuch = "application/json;as=Chair;g=meta.k8s.io;v=v1"
		for _, want := range []struct{ accept, kind, version string }{
			{tableV1 + ", application/json", "Table", "meta.k8s.io/v1"}, {tableV1 + "," + tableV1beta1 + ",application/json", "Table", "meta.k8s.io/v1"},
			{tableV1beta1 + ", " + tableV1, "Table", "meta.k8s.io/v1beta1"}, {noSuch + ", " + tableV1beta1, "Table", "meta.k8s.io/v1beta1"}, {noSuch + ", " + kit.AsMetadata(runtime.ContentTypeJSON, "v1"), "PartialObjectMetadata", "meta.k8s.io/v1"},
			{noSuch + ", application/json", "", ""}, {noSuch + ", application/yaml", "", ""}, {noSuch + ", */*", "", ""}, {"application/json, " + tableV1, "", ""},
		} {
			for path, own := range map[string][]string{c.Path("v1", "secrets", "a"): {"Secret", "v1"}, c.Path(version, "widgets", "a"): {"Widget", version}} {
				a := c.GetAs(t, want.accept, path).OK(t)
				kind := []string{want.kind, want.version}
				if want.kind == "" {
					kind = own
				}
				kit.Equal(t, []string{a.Text(t, "kind"), a.Text(t, "apiVersion")}, kind)
			}
		}
	}},
}
