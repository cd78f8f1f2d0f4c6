package aggregation

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

var openAPI = []kit.Promise{
	{Statement: "/openapi/v2 is an OpenAPI v2 document of all paths and kinds", Proof: func(t *testing.T, c *kit.Cluster) {
		document := c.Get(t, "/openapi/v2").OK(t)
		object := document.Object(t)
		if document.Header.Get("Content-Type") != "application/json" || object["swagger"] != "2.0" {
			t.Errorf("it is %s, swagger %v", document.Header.Get("Content-Type"), object["swagger"])
		}
		for _, fields := range [][]string{
			{"paths", "/api/v1/namespaces/{namespace}/pods/{name}", "get"}, {"paths", "/apis/apps/v1/deployments", "get"},
			{"paths", "/version/", "get"}, {"definitions", "io.k8s.api.core.v1.Pod", "properties", "spec"},
		} {
			if _, has, err := unstructured.NestedFieldNoCopy(object, fields...); err != nil || !has {
				t.Errorf("it lacks %v: %v", fields, err)
			}
		}
	}},
	{Statement: "/openapi/v2 is served as protobuf on request", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, accept := range []string{"application/com.github.proto-openapi.spec.v2@v1.0+protobuf", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"} {
			got := c.Send(t, http.MethodGet, "/openapi/v2", kit.Header{"Accept", accept}, nil).OK(t)
			var document openapi_v2.Document
			if err := proto.Unmarshal(got.Body, &document); err != nil || document.Swagger != "2.0" || len(document.Paths.Path) < 300 {
				t.Errorf("%s: %v, swagger %q", accept, err, document.Swagger)
			}
			if kind := got.Header.Get("Content-Type"); kind != "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" {
				t.Errorf("%s is returned as %s", accept, kind)
			}
		}
		c.Send(t, http.MethodGet, "/openapi/v2", kit.Header{"Accept", "text/html"}, nil).Want(t, http.StatusNotAcceptable)
	}},
	{Statement: "/openapi/v2 has an ETag, and If-None-Match with it gets 304", Proof: func(t *testing.T, c *kit.Cluster) {
		harness.Eventually(t, "the document is unchanged between two requests", func() bool { // other tests define kinds meanwhile
			etag := c.Get(t, "/openapi/v2").OK(t).Header.Get("Etag")
			again := c.Send(t, http.MethodGet, "/openapi/v2", kit.Header{"If-None-Match", etag}, nil).Want(t, http.StatusNotModified, http.StatusOK)
			if again.Code == http.StatusNotModified && (len(again.Body) > 0 || etag == "") {
				t.Errorf("the ETag is %q, the body %.100q", etag, again.Body)
			}
			return again.Code == http.StatusNotModified
		})
		c.Send(t, http.MethodGet, "/openapi/v2", kit.Header{"If-None-Match", `"another"`}, nil).OK(t)
	}},
	{Statement: "/openapi/v3 lists a document for each group version, with an address that includes its hash", Proof: func(t *testing.T, c *kit.Cluster) {
		harness.Eventually(t, "each has one", func() bool { // other tests define and delete kinds meanwhile
			served := aggregated(t, c, "/apis").Items
			paths := c.Get(t, "/openapi/v3").OK(t).Value(t, "paths").(map[string]any)
			wanted := []string{"api/v1", "version"}
			for _, group := range served {
				for _, version := range group.Versions {
					wanted = append(wanted, "apis/"+group.Name+"/"+version.Version)
				}
			}
			return !slices.ContainsFunc(wanted, func(path string) bool {
				entry, _ := paths[path].(map[string]any)
				return !strings.HasPrefix(fmt.Sprint(entry["serverRelativeURL"]), "/openapi/v3/"+path+"?hash=")
			})
		})
	}},
	{Statement: "an OpenAPI v3 document describes its group version's paths and kinds", Proof: func(t *testing.T, c *kit.Cluster) {
		document := c.Get(t, "/openapi/v3/apis/apps/v1").OK(t).Object(t)
		for _, fields := range [][]string{
			{"paths", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}", "patch", "x-kubernetes-group-version-kind"},
			{"components", "schemas", "io.k8s.api.apps.v1.Deployment", "x-kubernetes-group-version-kind"},
		} {
			if _, has, err := unstructured.NestedFieldNoCopy(document, fields...); err != nil || !has {
				t.Errorf("it lacks %v: %v", fields, err)
			}
		}
		if version, _ := document["openapi"].(string); !strings.HasPrefix(version, "3.0") {
			t.Errorf("it is of OpenAPI %q", version)
		}
		// Unlike OpenAPI v2, it keeps defaults.
		if value, has, _ := unstructured.NestedFieldNoCopy(document, "components", "schemas", "io.k8s.api.core.v1.ContainerPort", "properties", "protocol", "default"); !has || value != "TCP" {
			t.Errorf("the default of a port's protocol is %v", value)
		}
	}},
	{Statement: "a document requested with its hash may be cached forever", Proof: func(t *testing.T, c *kit.Cluster) {
		address := documentAddress(t, c, "api/v1")
		got := c.Get(t, address).OK(t)
		if got.Header.Get("Cache-Control") != "public, immutable" || got.Header.Get("Expires") == "" {
			t.Errorf("the header is %v", got.Header)
		}
		if etag := got.Header.Get("Etag"); !strings.HasSuffix(address, "?hash="+strings.Trim(etag, `"`)) {
			t.Errorf("the ETag is %s at %s", etag, address)
		}
		c.Send(t, http.MethodGet, address, kit.Header{"If-None-Match", got.Header.Get("Etag")}, nil).Want(t, http.StatusNotModified)
		if cache := c.Get(t, "/openapi/v3/api/v1").OK(t).Header.Get("Cache-Control"); strings.Contains(cache, "immutable") {
			t.Errorf("without its hash, it may be cached: %s", cache)
		}
	}},
	{Statement: "a wrong hash redirects to the address with the right one", Proof: func(t *testing.T, c *kit.Cluster) {
		c.HTTP.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		got := c.Get(t, "/openapi/v3/api/v1?hash=OLD").Want(t, http.StatusMovedPermanently)
		kit.Equal(t, got.Header.Get("Location"), documentAddress(t, c, "api/v1"))
	}},
	{Statement: "an OpenAPI v3 document is served as protobuf on request", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, accept := range []string{"application/com.github.proto-openapi.spec.v3@v1.0+protobuf", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"} {
			got := c.Send(t, http.MethodGet, "/openapi/v3/apis/batch/v1", kit.Header{"Accept", accept}, nil).OK(t)
			var document openapi_v3.Document
			if err := proto.Unmarshal(got.Body, &document); err != nil || !strings.HasPrefix(document.Openapi, "3.0") {
				t.Errorf("%s: %v, %q", accept, err, document.Openapi)
			}
			if kind := got.Header.Get("Content-Type"); kind != "application/com.github.proto-openapi.spec.v3.v1.0+protobuf" {
				t.Errorf("%s is returned as %s", accept, kind)
			}
		}
		c.Send(t, http.MethodGet, "/openapi/v3/apis/batch/v1", kit.Header{"Accept", "text/html"}, nil).Want(t, http.StatusNotAcceptable)
		c.Get(t, "/openapi/v3/apis/batch/v9").Want(t, http.StatusNotFound)
	}},
	{Statement: "OpenAPI includes custom resources with their schemas while they are served", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.DefineWidgets(t, "{type: object, properties: {spec: {type: object, description: what it is to be}}}")
		harness.Eventually(t, "OpenAPI v3 has it", func() bool {
			return strings.Contains(string(c.Get(t, "/openapi/v3/apis/"+version).Body), "what it is to be")
		})
		before := documentAddress(t, c, "apis/"+version)
		harness.Eventually(t, "OpenAPI v2 has it", func() bool { return strings.Contains(string(c.Get(t, "/openapi/v2").Body), "what it is to be") })

		path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets." + strings.TrimSuffix(version, "/v1")
		c.Patch(t, kit.JSONPatch, path, `[{"op":"replace","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/description","value":"another"}]`).OK(t)
		harness.Eventually(t, "the document has another address", func() bool { return documentAddress(t, c, "apis/"+version) != before })
		c.Delete(t, path).OK(t)
		harness.Eventually(t, "it is removed", func() bool { return documentAddress(t, c, "apis/"+version) == "" })
	}},
}

// documentAddress returns the address of a document in the list of OpenAPI v3 documents, empty if there is none.
func documentAddress(t testing.TB, c *kit.Cluster, path string) string {
	t.Helper()
	address, _, _ := unstructured.NestedString(c.Get(t, "/openapi/v3").OK(t).Object(t), "paths", path, "serverRelativeURL")
	return address
}
