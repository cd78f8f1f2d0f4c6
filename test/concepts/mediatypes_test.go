package concepts

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// Section "HTTP media types". CBOR, which kube-apiserver serves with its feature gate CBORServingAndStorage on, is served
// by default here.
func TestMediaTypes(t *testing.T) {
	prove(t, nil, slices.Concat(mediaTypes, negotiated, protobufEnvelopes, transformed)...)
}

var mediaTypes = []promise{
	{"built-in objects are written and read in JSON, YAML, protobuf and CBOR, each with each", func(t *testing.T, c *cluster) {
		for i, in := range builtInTypes {
			for j, out := range builtInTypes {
				name := fmt.Sprintf("c%d%d", i, j)
				object := configMap(name, map[string]string{"in": in, "out": "ä\n\"<ü>\" "})
				object["binaryData"] = map[string]any{"bytes": "AAH/"}
				c.roundTrip(t, c.path("v1", "configmaps"), in, out, object)
			}
		}
	}},
	{"custom objects are written and read in JSON, YAML and CBOR, each with each", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		for i, in := range customTypes {
			for j, out := range customTypes {
				object := widget(groupVersion, fmt.Sprintf("w%d%d", i, j))
				object["spec"] = manifest(`{text: "ä\n<ü>", int: 9007199254740993, negative: -1, float: 0.5, "true": true, none: null, list: [{a: 1}, {a: 2}], empty: {}}`)
				c.roundTrip(t, c.path(groupVersion, "widgets"), in, out, object)
			}
		}
	}},
	{"a list is the same in every media type", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		for _, name := range []string{"a", "b", "c"} {
			c.post(t, c.path("v1", "secrets"), manifest("{apiVersion: v1, kind: Secret, metadata: {name: %s}, data: {k: AAH/}}", name)).want(t, http.StatusCreated)
			c.post(t, c.path(groupVersion, "widgets"), widget(groupVersion, name)).want(t, http.StatusCreated)
		}
		for path, types := range map[string][]string{c.path("v1", "secrets"): builtInTypes,
			c.path(groupVersion, "widgets"): customTypes} {
			want := c.get(t, path+"?limit=2").want(t, http.StatusOK).object(t)
			for _, mediaType := range types {
				got := c.getAs(t, mediaType, path+"?limit=2").want(t, http.StatusOK).in(t, mediaType)
				// Tokens are of the revision at which they were made.
				for _, list := range []map[string]any{want, got} {
					delete(field(t, list, "metadata").(map[string]any), "resourceVersion")
					delete(field(t, list, "metadata").(map[string]any), "continue")
				}
				equal(t, got, want)
			}
		}
	}},
	{"subresources are served in every media type of their resource", func(t *testing.T, c *cluster) {
		c.post(t, c.path("apps/v1", "deployments"), deployment("d")).want(t, http.StatusCreated)
		groupVersion := c.widgets(t, anySchema)
		w := widget(groupVersion, "w")
		w["spec"] = map[string]any{"replicas": 3}
		c.post(t, c.path(groupVersion, "widgets"), w).want(t, http.StatusCreated)
		for path, types := range map[string][]string{c.path("apps/v1", "deployments", "d"): builtInTypes,
			c.path(groupVersion, "widgets", "w"): customTypes} {
			for _, mediaType := range types {
				scale := c.getAs(t, mediaType, path+"/scale").want(t, http.StatusOK).in(t, mediaType)
				equal(t, []any{scale["kind"], field(t, scale, "spec", "replicas")}, []any{"Scale", 3.0})
				status := c.getAs(t, mediaType, path+"/status").want(t, http.StatusOK).in(t, mediaType)
				equal(t, field(t, status, "spec", "replicas"), any(3.0))
			}
		}
	}},
	{"errors come in the media type that was asked for", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		for _, mediaType := range builtInTypes {
			paths := []string{c.path("v1", "configmaps", "none"), c.path(groupVersion, "widgets", "none")}
			if mediaType == protobufType {
				paths = paths[:1]
			}
			for _, path := range paths {
				status := c.getAs(t, mediaType, path).want(t, http.StatusNotFound).in(t, mediaType)
				equal(t, []any{status["kind"], status["apiVersion"], status["reason"], status["code"]},
					[]any{"Status", "v1", "NotFound", 404.0})
			}
			invalid := encodeAs(t, mediaType, configMap("Not A Name", nil))
			status := c.send(t, http.MethodPost, c.path("v1", "configmaps"),
				header{"Content-Type", mediaType, "Accept", mediaType}, invalid).
				want(t, http.StatusUnprocessableEntity).in(t, mediaType)
			equal(t, []any{status["reason"], field(t, status, "details", "name")}, []any{"Invalid", "Not A Name"})
			// (kube-apiserver has no CBOR for what no resource answers.)
			status = c.getAs(t, mediaType, c.global("v1", "nothings")).want(t, http.StatusNotFound).in(t, mediaType)
			equal(t, status["message"], any("the server could not find the requested resource"))
		}
	}},
	{"discovery is served in every media type, but that of groups not in CBOR", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		group, _, _ := strings.Cut(groupVersion, "/")
		for path, kind := range map[string]string{"/apis": "APIGroupList", "/apis/apps": "APIGroup", "/apis/" + group: "APIGroup"} {
			for _, mediaType := range builtInTypes[:3] {
				equal(t, c.getAs(t, mediaType, path).want(t, http.StatusOK).in(t, mediaType)["kind"], any(kind))
			}
			c.getAs(t, cborType, path).refused(t, http.StatusNotAcceptable, "NotAcceptable")
		}
		// Of these kube-apiserver has only that of apps in CBOR, and loses the connection over that of the core group.
		for path, kind := range map[string]string{
			"/api": "APIVersions", "/api/v1": "APIResourceList", "/apis/apps/v1": "APIResourceList", "/apis/" + groupVersion: "APIResourceList",
		} {
			for _, mediaType := range builtInTypes {
				equal(t, c.getAs(t, mediaType, path).want(t, http.StatusOK).in(t, mediaType)["kind"], any(kind))
			}
		}
	}},
}

// roundTrip creates, updates and reads an object, which must stay as it is, and deletes it.
func (c *cluster) roundTrip(t testing.TB, path, in, out string, object map[string]any) {
	t.Helper()
	headers := header{"Content-Type", in, "Accept", out}
	name := field(t, object, "metadata", "name").(string)
	same := func(got map[string]any) {
		t.Helper()
		version := field(t, got, "metadata", "resourceVersion")
		got["metadata"] = map[string]any{"name": field(t, got, "metadata", "name")}
		object["metadata"] = map[string]any{"name": name}
		equal(t, got, decodeFrom(t, in, encodeAs(t, in, object)))
		object["metadata"].(map[string]any)["resourceVersion"] = version // which updates of custom resources need
	}
	same(c.send(t, http.MethodPost, path, headers, encodeAs(t, in, object)).want(t, http.StatusCreated).in(t, out))
	same(c.send(t, http.MethodPut, path+"/"+name, headers, encodeAs(t, in, object)).want(t, http.StatusOK).in(t, out))
	same(c.getAs(t, out, path+"/"+name).want(t, http.StatusOK).in(t, out))
	options := encodeAs(t, in, map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": []any{"All"}})
	c.send(t, http.MethodDelete, path+"/"+name, headers, options).want(t, http.StatusOK).in(t, out)
}

var negotiated = []promise{
	{"without an Accept header, or with one that takes anything, the answer is JSON", func(t *testing.T, c *cluster) {
		for _, accept := range []string{"", "*/*", "text/html, */*", "application/json", "application/json;charset=utf-8"} {
			c.getAs(t, accept, c.path("v1", "configmaps")).want(t, http.StatusOK).in(t, runtime.ContentTypeJSON)
		}
	}},
	{"of several types in Accept the best one that is served is chosen", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		for _, test := range []struct{ accept, builtIn, custom string }{
			{"application/yaml, application/json", "application/yaml", "application/yaml"},
			{"application/json;q=0.5, application/yaml", "application/yaml", "application/yaml"},
			{"application/yaml;q=0.1, application/cbor;q=0.9, application/json;q=0.5", cborType, cborType},
			{"application/x-nothing, application/yaml;q=0.2", "application/yaml", "application/yaml"},
			{"text/plain, */*;q=0.1", "application/json", "application/json"},
			{"application/json, application/*;q=0.1", "application/json", "application/json"},
			// A client that may meet custom resources names what to fall back to.
			{"application/vnd.kubernetes.protobuf, application/json", protobufType, "application/json"},
			{"application/vnd.kubernetes.protobuf,application/yaml;q=0.8,application/json;q=0.7",
				protobufType, "application/yaml"},
			{"application/cbor, application/vnd.kubernetes.protobuf;q=0.9", cborType, cborType},
		} {
			c.getAs(t, test.accept, c.path("v1", "configmaps")).want(t, http.StatusOK).in(t, test.builtIn)
			c.getAs(t, test.accept, c.path(groupVersion, "widgets")).want(t, http.StatusOK).in(t, test.custom)
		}
	}},
	{"what can't be answered in any accepted type is refused with 406 and a list of what can", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		const builtIn = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"
		const streams = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq"
		// The list of custom resources has protobuf too, though only what they are turned into is served in it.
		const custom = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"
		for _, accept := range []string{"text/plain", "text/*", "application/xml", "application/cbor-seq, text/plain"} {
			want := builtIn
			if strings.Contains(accept, "cbor-seq") {
				want = custom // for it is among the types of watches, on the same path
			}
			c.getAs(t, accept, c.path("v1", "configmaps")).refused(t, http.StatusNotAcceptable, "NotAcceptable", want)
			c.getAs(t, accept, c.path(groupVersion, "widgets")).refused(t, http.StatusNotAcceptable, "NotAcceptable", custom)
		}
		c.getAs(t, "text/plain", c.path("v1", "configmaps", "x")).
			refused(t, http.StatusNotAcceptable, "NotAcceptable", builtIn)
		c.getAs(t, "text/plain", c.path("v1", "configmaps")).
			refused(t, http.StatusNotAcceptable, "NotAcceptable", builtIn+streams)
		c.getAs(t, protobufType, c.path(groupVersion, "widgets")).want(t, http.StatusNotAcceptable).in(t, protobufType)
	}},
	{"a range of types is taken for custom resources, and not for built-in ones", func(t *testing.T, c *cluster) {
		// So it is in kube-apiserver, whose router for built-in resources knows no ranges but */*.
		groupVersion := c.widgets(t, anySchema)
		c.getAs(t, "application/*", c.path("v1", "configmaps")).refused(t, http.StatusNotAcceptable, "NotAcceptable")
		c.getAs(t, "application/*", c.path(groupVersion, "widgets")).want(t, http.StatusOK).in(t, runtime.ContentTypeJSON)
	}},
	{"a body of another type is refused with 415 and a list of what is taken", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		const format = "the body of the request was in an unknown format - accepted media types include: "
		const builtIn = format + "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"
		send := func(method, path, mediaType string) answer {
			return c.send(t, method, path, header{"Content-Type", mediaType}, "{}")
		}
		for _, mediaType := range []string{"text/plain", "application/x-www-form-urlencoded", "no type", "application/cbor-seq"} {
			send(http.MethodPost, c.path("v1", "configmaps"), mediaType).
				refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType", builtIn)
			send(http.MethodPut, c.path("v1", "configmaps", "x"), mediaType).
				refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType", builtIn)
			send(http.MethodDelete, c.path("v1", "configmaps", "x"), mediaType).
				refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType", format)
			send(http.MethodPatch, c.path("v1", "configmaps", "x"), mediaType).
				refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
			send(http.MethodPost, c.path(groupVersion, "widgets"), mediaType).
				refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType", builtIn)
			send(http.MethodPatch, c.path(groupVersion, "widgets", "x"), mediaType).
				refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType",
					format+"application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, application/apply-patch+cbor")
		}
		// kube-apiserver loses the connection over it.
		send(http.MethodPost, c.path(groupVersion, "widgets"), protobufType).
			refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType",
				format+"application/json, application/yaml, application/cbor")
	}},
	{"a body without a type is taken for JSON", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		c.send(t, http.MethodPost, c.path("v1", "configmaps"), header{"Content-Type", ""}, configMap("a", nil)).
			want(t, http.StatusCreated)
		c.send(t, http.MethodPost, c.path(groupVersion, "widgets"), header{"Content-Type", ""}, widget(groupVersion, "a")).
			want(t, http.StatusCreated)
		c.send(t, http.MethodPut, c.path("v1", "configmaps", "a"), header{"Content-Type", ""}, "kind: ConfigMap").
			refused(t, http.StatusBadRequest, "BadRequest", "couldn't get version/kind; json parse error")
	}},
	{"parameters of a Content-Type do not matter", func(t *testing.T, c *cluster) {
		for i, mediaType := range []string{"application/json; charset=utf-8", "application/json;charset=ISO-8859-1", "application/json;stream=watch", "Application/JSON"} {
			c.send(t, http.MethodPost, c.path("v1", "configmaps"), header{"Content-Type", mediaType},
				configMap(fmt.Sprint("c", i), nil)).want(t, http.StatusCreated)
		}
		body := encodeAs(t, protobufType, configMap("p", nil))
		c.send(t, http.MethodPost, c.path("v1", "configmaps"), header{"Content-Type", protobufType + ";stream=watch"}, body).
			want(t, http.StatusCreated)
	}},
	{"a body that is not what its type says is refused with 400", func(t *testing.T, c *cluster) {
		object := configMap("a", nil)
		for _, test := range []struct {
			mediaType string
			body      []byte
		}{
			{runtime.ContentTypeJSON, encodeAs(t, cborType, object)},
			{runtime.ContentTypeJSON, encodeAs(t, protobufType, object)},
			{runtime.ContentTypeJSON, encodeAs(t, runtime.ContentTypeYAML, object)},
			{runtime.ContentTypeYAML, encodeAs(t, cborType, object)},
			{protobufType, encodeAs(t, runtime.ContentTypeJSON, object)},
			{cborType, encodeAs(t, runtime.ContentTypeJSON, object)},
			{cborType, encodeAs(t, protobufType, object)},
			{cborType, nil},
		} {
			c.send(t, http.MethodPost, c.path("v1", "configmaps"), header{"Content-Type", test.mediaType}, test.body).
				refused(t, http.StatusBadRequest, "BadRequest")
		}
	}},
	{"JSON is indented for those who ask for it, and for browsers, curl and wget", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		c.post(t, c.path(groupVersion, "widgets"), widget(groupVersion, "a")).want(t, http.StatusCreated)
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).want(t, http.StatusCreated)
		for _, path := range []string{
			c.path("v1", "configmaps"), c.path("v1", "configmaps", "a"), c.path("v1", "configmaps", "none"),
			c.path(groupVersion, "widgets"), c.path(groupVersion, "widgets", "a"), "/apis/apps", "/apis",
		} {
			for _, test := range []struct {
				query, agent, accept string
				indented             bool
			}{
				{"", "kubectl/v1.36.3", "", false},
				{"", "curl/8.1", "", true},
				{"", "Wget/1.21", "", true},
				{"", "Mozilla/5.0 (X11)", "", true},
				{"?pretty=true", "kubectl/v1.36.3", "", true},
				{"?pretty=1", "x", "", true},
				{"?pretty=false", "curl/8.1", "", false},
				{"?pretty=0", "x", "", false},
				{"?pretty", "x", "", false},
				{"", "x", "application/json;pretty=1", true},
			} {
				a := c.send(t, http.MethodGet, path+test.query, header{"User-Agent", test.agent, "Accept", test.accept}, nil)
				a.in(t, runtime.ContentTypeJSON)
				if got := bytes.Contains(a.Body, []byte("\n  ")); got != test.indented {
					t.Errorf("%s with %+v is indented: %t", path, test, got)
				}
			}
		}
	}},
}
