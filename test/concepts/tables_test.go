package concepts

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// Section "Receiving resources as Tables", and objects of which only the metadata are wanted.
func TestTables(t *testing.T) {
	prove(t, nil, slices.Concat(tables, partialMetadata)...)
}

// The forms in JSON; in other media types they are in TestMediaTypes.
var (
	tableV1      = asTable(runtime.ContentTypeJSON, "v1")
	tableV1beta1 = asTable(runtime.ContentTypeJSON, "v1beta1")
)

// columns are the names of a Table's columns, in front of each its priority where that is not 0.
func (a answer) columns(t testing.TB) string {
	t.Helper()
	definitions, _ := a.value(t, "columnDefinitions").([]any)
	var names []string
	for _, definition := range definitions {
		d := definition.(map[string]any)
		name := fmt.Sprint(d["name"])
		if priority := d["priority"]; priority != 0.0 {
			name = fmt.Sprint(priority, ":", name)
		}
		if d["type"] == "" || d["description"] == "" {
			t.Errorf("%s: a column is %v", a.request, d)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// rows are the cells of a Table, without those that tell an age.
func (a answer) rows(t testing.TB) [][]any {
	t.Helper()
	columns := strings.Split(a.columns(t), ", ")
	rows := [][]any{}
	all, _ := a.value(t, "rows").([]any)
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

// rowObjects are what comes with the rows of a Table.
func (a answer) rowObjects(t testing.TB) []map[string]any {
	t.Helper()
	var objects []map[string]any
	all, _ := a.value(t, "rows").([]any)
	for _, row := range all {
		object, _ := row.(map[string]any)["object"].(map[string]any)
		objects = append(objects, object)
	}
	return objects
}

var tables = []promise{
	{"every resource that can be listed can be received as a Table, in both versions", func(t *testing.T, c *cluster) {
		all, err := c.kube.Discovery().ServerPreferredResources()
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range all {
			for _, resource := range group.APIResources {
				if !slices.Contains(resource.Verbs, "list") || strings.Contains(group.GroupVersion, ".example.com/") {
					continue
				}
				for accept, version := range map[string]string{tableV1: "meta.k8s.io/v1", tableV1beta1: "meta.k8s.io/v1beta1"} {
					table := c.getAs(t, accept, c.global(group.GroupVersion, resource.Name)).want(t, http.StatusOK)
					if table.text(t, "kind") != "Table" || table.text(t, "apiVersion") != version || table.Header.Get("Content-Type") != "application/json" {
						t.Errorf("%s: %s %s", table.request, table.text(t, "kind"), table.text(t, "apiVersion"))
					}
					named := slices.ContainsFunc(table.value(t, "columnDefinitions").([]any), func(definition any) bool {
						d := definition.(map[string]any)
						return d["name"] == "Name" && d["type"] == "string" && d["format"] == "name"
					})
					if !named {
						t.Errorf("%s has no column for the names: %s", table.request, table.columns(t))
					}
				}
			}
		}
	}},
	{"built-in resources have columns of their own, of which those with a priority are for wide output", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		c.post(t, c.path("v1", "pods"), pod("p")).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "services"), with(service("s"), "None", "spec", "clusterIP")).want(t, http.StatusCreated)
		c.post(t, c.path("apps/v1", "deployments"), deployment("d")).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "secrets"), secret("x")).want(t, http.StatusCreated)
		c.post(t, c.global("v1", "nodes"), manifest("{metadata: {name: %s}}", c.namespace)).want(t, http.StatusCreated)
		for _, want := range []struct {
			path, columns string
			cells         []any
		}{
			{c.path("v1", "pods"), "Name, Ready, Status, Restarts, Age, 1:IP, 1:Node, 1:Nominated Node, 1:Readiness Gates", []any{"p", "0/1", "Pending", "0", "<none>", "node", "<none>", "<none>"}},
			{c.path("v1", "services"), "Name, Type, Cluster-IP, External-IP, Port(s), Age, 1:Selector", []any{"s", "ClusterIP", "None", "<none>", "80/TCP", "app=a"}},
			{c.path("apps/v1", "deployments"), "Name, Ready, Up-to-date, Available, Age, 1:Containers, 1:Images, 1:Selector", []any{"d", "0/3", 0.0, 0.0, "c", "i", "app=d"}},
			{c.path("v1", "secrets"), "Name, Type, Data, Age", []any{"x", "Opaque", 0.0}},
			{c.global("v1", "nodes", c.namespace), "Name, Status, Roles, Age, Version, 1:Internal-IP, 1:External-IP, 1:OS-Image, 1:Kernel-Version, 1:Container-Runtime",
				[]any{c.namespace, "Unknown", "<none>", "", "<none>", "<none>", "<unknown>", "<unknown>", "<unknown>"}},
			{c.global("v1", "namespaces", c.namespace), "Name, Status, Age", []any{c.namespace, "Active"}},
		} {
			table := c.getAs(t, tableV1, want.path).want(t, http.StatusOK)
			equal(t, table.columns(t), want.columns)
			equal(t, table.rows(t), [][]any{want.cells})
		}
	}},
	{"a Table has the metadata of the list, and pages", func(t *testing.T, c *cluster) {
		path := c.path("v1", "secrets")
		for _, name := range []string{"a", "b", "c"} {
			c.post(t, path, secret(name)).want(t, http.StatusCreated)
		}
		first := c.getAs(t, tableV1, path+"?limit=2").want(t, http.StatusOK)
		equal(t, first.rows(t), [][]any{{"a", "Opaque", 0.0}, {"b", "Opaque", 0.0}})
		equal(t, first.value(t, "metadata", "remainingItemCount"), any(1.0))
		second := c.getAs(t, tableV1, path+"?limit=2&continue="+first.text(t, "metadata", "continue")).want(t, http.StatusOK)
		equal(t, second.rows(t), [][]any{{"c", "Opaque", 0.0}})
		equal(t, second.columns(t), first.columns(t))
		equal(t, []any{second.version(t), second.text(t, "metadata", "continue"), second.value(t, "metadata", "remainingItemCount")}, []any{first.version(t), "", nil})
		// A token is good for any form.
		equal(t, c.next(t, path+"?", first).names(t), []string{"c"})
		equal(t, c.getAs(t, tableV1, path+"?labelSelector=none").want(t, http.StatusOK).rows(t), [][]any{})
		equal(t, len(c.getAs(t, tableV1, path+"?resourceVersionMatch=Exact&resourceVersion="+first.version(t)).want(t, http.StatusOK).rows(t)), 3)
	}},
	{"a Table of one object has its row and its resourceVersion", func(t *testing.T, c *cluster) {
		created := c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		table := c.getAs(t, tableV1, c.path("v1", "secrets", "a")).want(t, http.StatusOK)
		equal(t, table.rows(t), [][]any{{"a", "Opaque", 0.0}})
		equal(t, table.version(t), created.version(t))
		c.getAs(t, tableV1, c.path("v1", "secrets", "none")).refused(t, http.StatusNotFound, "NotFound", `secrets "none" not found`)
	}},
	{"includeObject says what comes with a row: nothing, the metadata or the whole object", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "secrets"), with(secret("a"), map[string]string{"l": "1"}, "metadata", "labels")).want(t, http.StatusCreated)
		version := c.widgets(t, anySchema)
		c.post(t, c.path(version, "widgets"), with(widget(version, "a"), map[string]string{"l": "1"}, "metadata", "labels")).want(t, http.StatusCreated)
		for path, kind := range map[string][]any{c.path("v1", "secrets"): {"v1", "Secret"}, c.path(version, "widgets"): {version, "Widget"}} {
			for accept, metaVersion := range map[string]string{tableV1: "meta.k8s.io/v1", tableV1beta1: "meta.k8s.io/v1beta1"} {
				for query, want := range map[string][]any{
					"": {metaVersion, "PartialObjectMetadata"}, "includeObject=": {metaVersion, "PartialObjectMetadata"}, "includeObject=Metadata": {metaVersion, "PartialObjectMetadata"},
					"includeObject=Object": kind, "includeObject=None": nil,
				} {
					for _, read := range []string{path + "?" + query, path + "/a?" + query, path + "?limit=1&" + query} {
						object := c.getAs(t, accept, read).want(t, http.StatusOK).rowObjects(t)[0]
						if want == nil {
							equal(t, object, map[string]any(nil))
							continue
						}
						equal(t, []any{object["apiVersion"], object["kind"]}, want)
						equal(t, object["metadata"].(map[string]any)["labels"], any(map[string]any{"l": "1"}))
						if want[1] == "PartialObjectMetadata" && len(object) != 3 {
							t.Errorf("%s: the metadata come with more: %v", read, object)
						}
					}
				}
			}
			c.getAs(t, tableV1, path+"?includeObject=Everything").refused(t, http.StatusBadRequest, "BadRequest", `includeObject: Invalid value: "Everything": must be 'Metadata', 'Object', 'None', or empty`)
		}
	}},
	{"a custom resource without columns has those of its name and age", func(t *testing.T, c *cluster) {
		version := c.widgets(t, anySchema)
		c.post(t, c.path(version, "widgets"), widget(version, "a")).want(t, http.StatusCreated)
		for _, accept := range []string{tableV1, tableV1beta1} {
			table := c.getAs(t, accept, c.path(version, "widgets")).want(t, http.StatusOK)
			equal(t, table.columns(t), "Name, Age")
			equal(t, table.rows(t), [][]any{{"a"}})
		}
	}},
	{"a custom resource has the columns of its definition, in each version its own", func(t *testing.T, c *cluster) {
		schema := `{spec: {type: object, properties: {size: {type: integer}, ratio: {type: number}, ready: {type: boolean}, name: {type: string}, born: {type: string}}}}`
		w := c.define(t,
			version("v1", schema, `additionalPrinterColumns: [
				{name: Size, type: integer, jsonPath: .spec.size, description: How large it is, format: int32}, {name: Ratio, type: number, jsonPath: .spec.ratio},
				{name: Ready, type: boolean, jsonPath: .spec.ready}, {name: Nickname, type: string, jsonPath: .spec.name, priority: 1},
				{name: Born, type: date, jsonPath: .spec.born}, {name: Missing, type: string, jsonPath: .spec.nothing}]`),
			version("v2", schema, `additionalPrinterColumns: [{name: Age, type: date, jsonPath: .metadata.creationTimestamp}]`))
		w.create(t, "a", `spec: {size: 3, ratio: 0.5, ready: true, name: x, born: "2001-01-01T00:00:00Z"}`).want(t, http.StatusCreated)
		w.create(t, "b", `{}`).want(t, http.StatusCreated)
		table := c.getAs(t, tableV1, w.at("v1")).want(t, http.StatusOK)
		equal(t, table.columns(t), "Name, Size, Ratio, Ready, 1:Nickname, Born, Missing")
		rows := table.rows(t)
		rows[0][5] = strings.TrimLeft(rows[0][5].(string), "0123456789") // how old it is grows
		equal(t, rows, [][]any{{"a", 3.0, 0.5, true, "x", "y", nil}, {"b", nil, nil, nil, nil, nil, nil}})
		size := table.value(t, "columnDefinitions").([]any)[1]
		equal(t, size, any(map[string]any{"name": "Size", "type": "integer", "format": "int32", "description": "How large it is", "priority": 0.0}))
		second := c.getAs(t, tableV1, w.at("v2")).want(t, http.StatusOK)
		equal(t, second.columns(t), "Name, Age")
		equal(t, second.rows(t), [][]any{{"a"}, {"b"}})
	}},
	{"what is no resource has no Table", func(t *testing.T, c *cluster) {
		for _, path := range []string{"/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1"} {
			c.getAs(t, tableV1, path).want(t, http.StatusNotAcceptable)
		}
	}},
	{"of several forms in one Accept the first that there is, is sent", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		version := c.widgets(t, anySchema)
		c.post(t, c.path(version, "widgets"), widget(version, "a")).want(t, http.StatusCreated)
		const noSuch = "application/json;as=Chair;g=meta.k8s.io;v=v1"
		for _, want := range []struct{ accept, kind, version string }{
			{tableV1 + ", application/json", "Table", "meta.k8s.io/v1"}, {tableV1 + "," + tableV1beta1 + ",application/json", "Table", "meta.k8s.io/v1"},
			{tableV1beta1 + ", " + tableV1, "Table", "meta.k8s.io/v1beta1"}, {noSuch + ", " + tableV1beta1, "Table", "meta.k8s.io/v1beta1"}, {noSuch + ", " + asMetadata(runtime.ContentTypeJSON, "v1"), "PartialObjectMetadata", "meta.k8s.io/v1"},
			{noSuch + ", application/json", "", ""}, {noSuch + ", application/yaml", "", ""}, {noSuch + ", */*", "", ""}, {"application/json, " + tableV1, "", ""},
		} {
			for path, own := range map[string][]string{c.path("v1", "secrets", "a"): {"Secret", "v1"}, c.path(version, "widgets", "a"): {"Widget", version}} {
				a := c.getAs(t, want.accept, path).want(t, http.StatusOK)
				kind := []string{want.kind, want.version}
				if want.kind == "" {
					kind = own
				}
				equal(t, []string{a.text(t, "kind"), a.text(t, "apiVersion")}, kind)
			}
		}
	}},
	{"a watch of Tables sends a Table with each event, with columns in the first", func(t *testing.T, c *cluster) {
		version := c.get(t, c.path("v1", "secrets")).version(t)
		c.post(t, c.path("v1", "secrets"), secret("a")).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "secrets"), secret("b")).want(t, http.StatusCreated)
		watch := c.watchAs(t, 2, header{"Accept", tableV1}, c.path("v1", "secrets")+"?watch=true&resourceVersion="+version)
		events := strings.Split(strings.TrimSpace(string(watch.Body)), "\n")
		if len(events) != 2 {
			t.Fatalf("%d events: %s", len(events), watch.Body)
		}
		for i, name := range []string{"a", "b"} {
			e := answer{request: "event", Body: []byte(events[i])}
			table := e.value(t, "object").(map[string]any)
			columns, _ := table["columnDefinitions"].([]any)
			if e.text(t, "type") != "ADDED" || table["kind"] != "Table" || (len(columns) > 0) != (i == 0) {
				t.Errorf("event %d is %s", i, events[i])
			}
			row := table["rows"].([]any)[0].(map[string]any)
			equal(t, row["cells"].([]any)[0], any(name))
		}
	}},
	{"kubectl prints the Tables that the server makes", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		c.post(t, c.path("v1", "pods"), pod("p")).want(t, http.StatusCreated)
		narrow, ok := c.kubectl(t, "", "get", "pods", "--no-headers")
		wide, okWide := c.kubectl(t, "", "get", "pods", "-o", "wide")
		if !ok || !slices.Equal(strings.Fields(narrow)[:4], []string{"p", "0/1", "Pending", "0"}) || strings.Contains(narrow, "node") {
			t.Errorf("kubectl get pods: %s", narrow)
		}
		if !okWide || !strings.Contains(wide, "READINESS GATES") || !strings.Contains(wide, " node ") {
			t.Errorf("kubectl get pods -o wide: %s", wide)
		}
	}},
}
