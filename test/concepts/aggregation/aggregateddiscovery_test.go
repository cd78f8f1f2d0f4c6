package aggregation

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// What the aggregation layer merges: discovery and OpenAPI.
var aggregatedDocuments = []kit.Promise{
	{Statement: "discovery includes the groups of other servers, ordered by the priorities of their APIServices", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		kit.MakeServiceTo(t, c)
		first := kit.With(kit.NewAPIService(c, r.Group, r.Port, r.CA), 19000, "spec", "groupPriorityMinimum")
		beta := kit.With(kit.With(kit.With(kit.NewAPIService(c, r.Group, r.Port, r.CA), "v2beta1."+r.Group, "metadata", "name"), "v2beta1", "spec", "version"), 11, "spec", "versionPriority")
		kit.RegisterAPIService(t, c, first)
		kit.RegisterAPIService(t, c, beta)
		kit.WaitAvailable(t, c, "v1."+r.Group, "True", "Passed")
		harness.Eventually(t, "the group comes after apiregistration.k8s.io and before apps", func() bool {
			names := groupNames(t, c)
			at := slices.Index(names, r.Group)
			return names[0] == "apiregistration.k8s.io" && at > 0 && at < slices.Index(names, "apps")
		})
		var group kit.Answer
		harness.Eventually(t, "the group has both versions", func() bool {
			group = c.Get(t, "/apis/"+r.Group).OK(t)
			versions, _ := group.Value(t, "versions").([]any)
			return len(versions) == 2
		})
		kit.Equal(t, group.Object(t), kit.Manifest(`{kind: APIGroup, apiVersion: v1, name: %[1]s, preferredVersion: {groupVersion: %[1]s/v2beta1, version: v2beta1},
			versions: [{groupVersion: %[1]s/v2beta1, version: v2beta1}, {groupVersion: %[1]s/v1, version: v1}]}`, r.Group))
		harness.Eventually(t, "aggregated discovery has it in the same place", func() bool {
			items := discovered(t, c)
			at := slices.IndexFunc(items, named(r.Group))
			return named("apiregistration.k8s.io")(items[0]) && at > 0 && at < slices.IndexFunc(items, named("apps"))
		})
	}},
	{Statement: "aggregated discovery has the resources reported by the server of an aggregated API", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		r.Register(t, c)
		harness.Eventually(t, "the widgets are discovered", func() bool { return freshness(t, c, r.Group) == "Current" })
		kit.Equal(t, resourcesOf(t, c, r.Group), []any{kit.Manifest(`{resource: widgets, singularResource: widget, scope: Namespaced, shortNames: [wd],
			responseKind: {group: %s, version: v1, kind: Widget}, verbs: [create, get, list]}`, r.Group)})
	}},
	{Statement: "if a server lacks aggregated discovery, the documents of its versions are read", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		delete(r.Answers, "/apis")
		r.Register(t, c)
		harness.Eventually(t, "the widgets are discovered", func() bool { return freshness(t, c, r.Group) == "Current" })
		if resources := resourcesOf(t, c, r.Group); len(resources) != 1 || resources[0].(map[string]any)["resource"] != "widgets" {
			t.Errorf("discovery has %v", resources)
		}
	}},
	{Statement: "a version whose server can't be reached is marked as stale", Proof: func(t *testing.T, c *kit.Cluster) {
		group := c.Namespace + ".example.com"
		kit.RegisterAPIService(t, c, kit.NewAPIService(c, group, 443, nil))
		harness.Eventually(t, "the version is stale", func() bool { return freshness(t, c, group) == "Stale" })
	}},
	{Statement: "discovery and OpenAPI drop a group when its APIService is deleted", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		r.Register(t, c)
		haveGroup := func() []bool {
			index := c.Get(t, "/openapi/v3").OK(t).Value(t, "paths").(map[string]any)
			return []bool{slices.Contains(groupNames(t, c), r.Group), slices.ContainsFunc(discovered(t, c), named(r.Group)), index["apis/"+r.Group+"/v1"] != nil}
		}
		harness.Eventually(t, "all have the group", func() bool { return !slices.Contains(haveGroup(), false) })
		c.Delete(t, kit.APIServices+"/v1."+r.Group).OK(t)
		harness.Eventually(t, "none has the group", func() bool { return !slices.Contains(haveGroup(), true) })
		for _, path := range []string{"/apis/" + r.Group, "/apis/" + r.Group + "/v1", r.Path(c), "/openapi/v3/apis/" + r.Group + "/v1"} {
			c.Get(t, path).Want(t, http.StatusNotFound)
		}
	}},
	{Statement: "the OpenAPI v3 document of an aggregated API is its server's, with that server's hash", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		r.Register(t, c)
		path := "/openapi/v3/apis/" + r.Group + "/v1"
		waitOpenAPI(t, c, r, path+"?hash=ABC")
		kit.Equal(t, c.Get(t, path+"?hash=ABC").OK(t).Text(t, "info", "title"), "widgets")
		kit.Equal(t, r.LastRequest(t, path).URL.RawQuery, "hash=ABC")
	}},
	{Statement: "the OpenAPI of an aggregated API is read again when its Service changes, without the wait for the next minute", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		r.Register(t, c)
		path := "/openapi/v3/apis/" + r.Group + "/v1"
		waitOpenAPI(t, c, r, path+"?hash=ABC")
		for _, release := range []string{"2", "3"} { // so one of the two can't be what is read once a minute
			r.SetAnswer("/openapi/v3", `{"paths":{"apis/`+r.Group+`/v1":{"serverRelativeURL":"`+path+`?hash=`+release+`"}}}`)
			c.Patch(t, kit.MergePatch, c.Path("v1", "services", "widgets"), map[string]any{"metadata": map[string]any{"labels": map[string]any{"release": release}}}).OK(t)
			deadline := time.Now().Add(harness.Patience / 3)
			for documentAddress(t, c, "apis/"+r.Group+"/v1") != path+"?hash="+release {
				if time.Now().After(deadline) {
					t.Fatalf("the documents of release %s are not listed", release)
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
	}},
	{Statement: "the OpenAPI v2 document includes the group version of an aggregated API from its server, and nothing else", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		r.Register(t, c)
		waitOpenAPI(t, c, r, "")
		var document kit.Answer
		harness.Eventually(t, "the OpenAPI v2 document has widgets", func() bool {
			document = c.Get(t, "/openapi/v2").OK(t)
			return strings.Contains(string(document.Body), "/apis/"+r.Group+"/v1/widgets")
		})
		object := document.Object(t)
		for path, want := range map[string]bool{"/apis/" + r.Group + "/v1/widgets": true, "/apis/another.example.com/v1/widgets": false, "/api/v1/pods": true} {
			if _, has, _ := unstructured.NestedFieldNoCopy(object, "paths", path); has != want {
				t.Errorf("has %s: %v", path, has)
			}
		}
		if !strings.Contains(string(document.Body), "what "+r.Group+" makes") {
			t.Error("it lacks the definition of widgets")
		}
		protobuf := c.Send(t, http.MethodGet, "/openapi/v2", kit.Header{"Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}, nil).OK(t)
		if !strings.Contains(string(protobuf.Body), "what "+r.Group+" makes") || document.Header.Get("Etag") == "" {
			t.Error("protobuf lacks the definition of widgets")
		}
	}},
	{Statement: "an aggregated API whose server only has OpenAPI v2 also gets an OpenAPI v3 document", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		delete(r.Answers, "/openapi/v3")
		r.Register(t, c)
		waitOpenAPI(t, c, r, "")
		document := c.Get(t, "/openapi/v3/apis/"+r.Group+"/v1").OK(t)
		kit.Equal(t, document.Text(t, "components", "schemas", "Widget", "description"), "what "+r.Group+" makes")
	}},
	{Statement: "an aggregated API without OpenAPI does not affect the documents of others", Proof: func(t *testing.T, c *kit.Cluster) {
		r := kit.StartAggregatedServer(t, c, "127.0.0.1")
		delete(r.Answers, "/openapi/v3")
		delete(r.Answers, "/openapi/v2")
		r.Register(t, c)
		harness.Eventually(t, "the server receives a request for OpenAPI", func() bool { return slices.Contains(r.Requests(), "GET /openapi/v2") })
		paths := c.Get(t, "/openapi/v3").OK(t).Value(t, "paths").(map[string]any)
		if paths["apis/"+r.Group+"/v1"] != nil || paths["apis/apps/v1"] == nil {
			t.Errorf("the list is %v", paths)
		}
		c.Get(t, "/openapi/v2").OK(t)
	}},
	{Statement: "a custom resource may add a version to a built-in group, and discovery includes it", Proof: func(t *testing.T, c *kit.Cluster) {
		definitions := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		definition := kit.With(kit.WidgetDefinition("node.k8s.io", kit.AnySchema), "unapproved, for a test", "metadata", "annotations", "api-approved.kubernetes.io")
		definition["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)["name"] = "v9alpha1"
		c.Post(t, definitions, definition).Created(t)
		c.DeleteAtEnd(t, definitions+"/widgets.node.k8s.io")
		for _, path := range []string{"/apis", "/apis/node.k8s.io"} {
			harness.Eventually(t, path+" has the version", func() bool { return strings.Contains(string(c.Get(t, path).Body), `"node.k8s.io/v9alpha1"`) })
		}
		harness.Eventually(t, "aggregated discovery has the version, with its resource", func() bool {
			items := discovered(t, c)
			return strings.Contains(string(kit.JSON(items[slices.IndexFunc(items, named("node.k8s.io"))])), `"resource":"widgets"`)
		})
		// But requests for a built-in group never reach custom resources.
		c.Get(t, c.Path("node.k8s.io/v9alpha1", "widgets")).Want(t, http.StatusNotFound)
	}},
}

// discovered returns the items of aggregated discovery.
func discovered(t testing.TB, c *kit.Cluster) []any {
	t.Helper()
	items, _ := c.Send(t, http.MethodGet, "/apis", kit.Header{"Accept", kit.AggregatedList}, nil).OK(t).Value(t, "items").([]any)
	return items
}

// named returns a function that reports whether an item is that of a group.
func named(group string) func(any) bool {
	return func(item any) bool {
		name, _, _ := unstructured.NestedString(item.(map[string]any), "metadata", "name")
		return name == group
	}
}

// versionOf returns a group's first version in aggregated discovery, nil if there is none.
func versionOf(t testing.TB, c *kit.Cluster, group string) map[string]any {
	t.Helper()
	items := discovered(t, c)
	at := slices.IndexFunc(items, named(group))
	if at < 0 {
		return nil
	}
	return items[at].(map[string]any)["versions"].([]any)[0].(map[string]any)
}

func freshness(t testing.TB, c *kit.Cluster, group string) string {
	text, _ := versionOf(t, c, group)["freshness"].(string)
	return text
}

func resourcesOf(t testing.TB, c *kit.Cluster, group string) []any {
	resources, _ := versionOf(t, c, group)["resources"].([]any)
	return resources
}

// waitOpenAPI waits until the list of OpenAPI v3 documents includes the group, at the given address if that isn't empty.
func waitOpenAPI(t testing.TB, c *kit.Cluster, r *kit.AggregatedServer, address string) {
	t.Helper()
	harness.Eventually(t, "OpenAPI has "+r.Group, func() bool {
		got := documentAddress(t, c, "apis/"+r.Group+"/v1")
		return got != "" && (address == "" || got == address)
	})
}
