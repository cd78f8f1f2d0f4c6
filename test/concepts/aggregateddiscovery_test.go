package concepts

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What the aggregation layer merges: discovery and OpenAPI.
func TestAggregatedDocuments(t *testing.T) {
	prove(t, nil,
		promise{"discovery has the groups of other servers among its own, by the priorities of their APIServices", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			serviceTo(t, c)
			first := with(apiService(c, r.group, r.port, r.ca), 19000, "spec", "groupPriorityMinimum")
			beta := with(with(with(apiService(c, r.group, r.port, r.ca), "v2beta1."+r.group, "metadata", "name"), "v2beta1", "spec", "version"), 11, "spec", "versionPriority")
			registerAPIService(t, c, first)
			registerAPIService(t, c, beta)
			waitAvailable(t, c, "v1."+r.group, "True", "Passed")
			eventually(t, "the group comes after apiregistration.k8s.io and before apps", func() bool {
				names := groupNames(t, c)
				at := slices.Index(names, r.group)
				return names[0] == "apiregistration.k8s.io" && at > 0 && at < slices.Index(names, "apps")
			})
			group := c.get(t, "/apis/"+r.group).want(t, http.StatusOK)
			equal(t, group.object(t), manifest(`{kind: APIGroup, apiVersion: v1, name: %[1]s, preferredVersion: {groupVersion: %[1]s/v2beta1, version: v2beta1},
				versions: [{groupVersion: %[1]s/v2beta1, version: v2beta1}, {groupVersion: %[1]s/v1, version: v1}]}`, r.group))
			eventually(t, "aggregated discovery has it in the same place", func() bool {
				items := discovered(t, c)
				at := slices.IndexFunc(items, named(r.group))
				return named("apiregistration.k8s.io")(items[0]) && at > 0 && at < slices.IndexFunc(items, named("apps"))
			})
		}},
		promise{"aggregated discovery has what the server of an aggregated API says of its resources", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			eventually(t, "the widgets are discovered", func() bool { return freshness(t, c, r.group) == "Current" })
			equal(t, resourcesOf(t, c, r.group), []any{manifest(`{resource: widgets, singularResource: widget, scope: Namespaced, shortNames: [wd],
				responseKind: {group: %s, version: v1, kind: Widget}, verbs: [create, delete, get, list, watch]}`, r.group)})
		}},
		promise{"a server without aggregated discovery is asked for the documents of its versions", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			delete(r.answers, "/apis")
			r.register(t, c)
			eventually(t, "the widgets are discovered", func() bool { return freshness(t, c, r.group) == "Current" })
			if resources := resourcesOf(t, c, r.group); len(resources) != 1 || resources[0].(map[string]any)["resource"] != "widgets" {
				t.Errorf("discovery has %v", resources)
			}
		}},
		promise{"a version whose server can't be asked is marked as stale", func(t *testing.T, c *cluster) {
			group := c.namespace + ".example.com"
			registerAPIService(t, c, apiService(c, group, 443, nil))
			eventually(t, "the version is stale", func() bool { return freshness(t, c, group) == "Stale" })
		}},
		promise{"discovery and OpenAPI forget a group when its APIService goes", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			knows := func() []bool {
				index := c.get(t, "/openapi/v3").want(t, http.StatusOK).value(t, "paths").(map[string]any)
				return []bool{slices.Contains(groupNames(t, c), r.group), slices.ContainsFunc(discovered(t, c), named(r.group)), index["apis/"+r.group+"/v1"] != nil}
			}
			eventually(t, "all know the group", func() bool { return !slices.Contains(knows(), false) })
			c.delete(t, apiServices+"/v1."+r.group).want(t, http.StatusOK)
			eventually(t, "all have forgotten the group", func() bool { return !slices.Contains(knows(), true) })
			for _, path := range []string{"/apis/" + r.group, "/apis/" + r.group + "/v1", r.path(c), "/openapi/v3/apis/" + r.group + "/v1"} {
				c.get(t, path).want(t, http.StatusNotFound)
			}
		}},
		promise{"the OpenAPI v3 document of an aggregated API is its server's, under the hash that this has given it", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			path := "/openapi/v3/apis/" + r.group + "/v1"
			waitOpenAPI(t, c, r, path+"?hash=ABC")
			if title := c.get(t, path+"?hash=ABC").want(t, http.StatusOK).text(t, "info", "title"); title != "widgets" {
				t.Errorf("the title is %q", title)
			}
			if query := r.last(t, path).URL.RawQuery; query != "hash=ABC" {
				t.Errorf("the server got %q", query)
			}
		}},
		promise{"the OpenAPI v2 document has what an aggregated API's server has of its group version, and no more", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			r.register(t, c)
			waitOpenAPI(t, c, r, "")
			var document answer
			eventually(t, "the OpenAPI v2 document has widgets", func() bool {
				document = c.get(t, "/openapi/v2").want(t, http.StatusOK)
				return strings.Contains(string(document.Body), "/apis/"+r.group+"/v1/widgets")
			})
			object := document.object(t)
			for path, want := range map[string]bool{"/apis/" + r.group + "/v1/widgets": true, "/apis/another.example.com/v1/widgets": false, "/api/v1/pods": true} {
				if _, has, _ := unstructured.NestedFieldNoCopy(object, "paths", path); has != want {
					t.Errorf("has %s: %v", path, has)
				}
			}
			if !strings.Contains(string(document.Body), "what "+r.group+" makes") {
				t.Error("it lacks the definition of widgets")
			}
			protobuf := c.send(t, http.MethodGet, "/openapi/v2", header{"Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}, nil).want(t, http.StatusOK)
			if !strings.Contains(string(protobuf.Body), "what "+r.group+" makes") || document.Header.Get("Etag") == "" {
				t.Error("protobuf lacks the definition of widgets")
			}
		}},
		promise{"an aggregated API whose server has OpenAPI v2 alone is described by OpenAPI v3 too", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			delete(r.answers, "/openapi/v3")
			r.register(t, c)
			waitOpenAPI(t, c, r, "")
			document := c.get(t, "/openapi/v3/apis/"+r.group+"/v1").want(t, http.StatusOK)
			if text := document.text(t, "components", "schemas", "Widget", "description"); text != "what "+r.group+" makes" {
				t.Errorf("the description is %q", text)
			}
		}},
		promise{"an aggregated API whose server has no OpenAPI takes nothing from what others have", func(t *testing.T, c *cluster) {
			r := startRemote(t, c, "127.0.0.1")
			delete(r.answers, "/openapi/v3")
			delete(r.answers, "/openapi/v2")
			r.register(t, c)
			eventually(t, "the server is asked for OpenAPI", func() bool { return slices.Contains(r.seen(), "GET /openapi/v2") })
			paths := c.get(t, "/openapi/v3").want(t, http.StatusOK).value(t, "paths").(map[string]any)
			if paths["apis/"+r.group+"/v1"] != nil || paths["apis/apps/v1"] == nil {
				t.Errorf("the list is %v", paths)
			}
			c.get(t, "/openapi/v2").want(t, http.StatusOK)
		}},
		promise{"a custom resource may add a version to a built-in group, which discovery then has", func(t *testing.T, c *cluster) {
			definitions := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
			definition := with(widgetDefinition("node.k8s.io", anySchema), "unapproved, for a test", "metadata", "annotations", "api-approved.kubernetes.io")
			definition["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["name"] = "v9alpha1"
			c.post(t, definitions, definition).want(t, http.StatusCreated)
			c.deleteLater(t, definitions+"/widgets.node.k8s.io")
			for _, path := range []string{"/apis", "/apis/node.k8s.io"} {
				eventually(t, path+" has the version", func() bool { return strings.Contains(string(c.get(t, path).Body), `"node.k8s.io/v9alpha1"`) })
			}
			eventually(t, "aggregated discovery has the version, with its resource", func() bool {
				items := discovered(t, c)
				return strings.Contains(string(asYAML(items[slices.IndexFunc(items, named("node.k8s.io"))])), `"resource":"widgets"`)
			})
			// But requests for a built-in group get no further than those who serve it.
			c.get(t, c.path("node.k8s.io/v9alpha1", "widgets")).want(t, http.StatusNotFound)
		}},
	)
}

// discovered are the items of aggregated discovery.
func discovered(t testing.TB, c *cluster) []any {
	t.Helper()
	items, _ := c.send(t, http.MethodGet, "/apis", header{"Accept", aggregatedList}, nil).want(t, http.StatusOK).value(t, "items").([]any)
	return items
}

// named tells the item of a group.
func named(group string) func(any) bool {
	return func(item any) bool {
		name, _, _ := unstructured.NestedString(item.(map[string]any), "metadata", "name")
		return name == group
	}
}

// versionOf is what aggregated discovery has of a group's first version; nil if there is none.
func versionOf(t testing.TB, c *cluster, group string) map[string]any {
	t.Helper()
	items := discovered(t, c)
	at := slices.IndexFunc(items, named(group))
	if at < 0 {
		return nil
	}
	return items[at].(map[string]any)["versions"].([]any)[0].(map[string]any)
}

func freshness(t testing.TB, c *cluster, group string) string {
	text, _ := versionOf(t, c, group)["freshness"].(string)
	return text
}

func resourcesOf(t testing.TB, c *cluster, group string) []any {
	resources, _ := versionOf(t, c, group)["resources"].([]any)
	return resources
}

// waitOpenAPI waits until the list of OpenAPI v3 documents has that of the group, at the given address if it isn't empty.
func waitOpenAPI(t testing.TB, c *cluster, r *remote, address string) {
	t.Helper()
	eventually(t, "OpenAPI has "+r.group, func() bool {
		got := documentAddress(t, c, "apis/"+r.group+"/v1")
		return got != "" && (address == "" || got == address)
	})
}
