// Package mediatypes tests sqube against the documentation of media types: JSON, YAML, protobuf and CBOR.
package mediatypes

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/test/concepts/kit"
)

func TestMain(m *testing.M) { kit.Main(m) }

// Section "HTTP media types". CBOR, which kube-apiserver serves with its feature gate CBORServingAndStorage on, is served
// by default here.
func TestMediaTypes(t *testing.T) {
	kit.Prove(t, nil, slices.Concat(mediaTypes, negotiated, protobufEnvelopes, transformed, cborResponses)...)
}

var mediaTypes = []kit.Promise{
	{Statement: "built-in objects can be written and read in JSON, YAML, protobuf and CBOR, in any combination", Proof: func(t *testing.T, c *kit.Cluster) {
		for i, in := range kit.BuiltInTypes {
			for j, out := range kit.BuiltInTypes {
				name := fmt.Sprintf("c%d%d", i, j)
				object := kit.ConfigMap(name, map[string]string{"in": in, "out": "ä\n\"<ü>\" "})
				object["binaryData"] = map[string]any{"bytes": "AAH/"}
				roundTrip(t, c, c.Path("v1", "configmaps"), in, out, object)
			}
		}
	}},
	{Statement: "custom objects can be written and read in JSON, YAML and CBOR, in any combination", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for i, in := range kit.CustomTypes {
			for j, out := range kit.CustomTypes {
				object := kit.Widget(groupVersion, fmt.Sprintf("w%d%d", i, j))
				object["spec"] = kit.Manifest(`{text: "ä\n<ü>", int: 9007199254740993, negative: -1, float: 0.5, "true": true, none: null, list: [{a: 1}, {a: 2}], empty: {}}`)
				roundTrip(t, c, c.Path(groupVersion, "widgets"), in, out, object)
			}
		}
	}},
	{Statement: "a list is the same in every media type", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for _, name := range []string{"a", "b", "c"} {
			c.Post(t, c.Path("v1", "secrets"), kit.Manifest("{apiVersion: v1, kind: Secret, metadata: {name: %s}, data: {k: AAH/}}", name)).Created(t)
			c.Post(t, c.Path(groupVersion, "widgets"), kit.Widget(groupVersion, name)).Created(t)
		}
		for path, types := range map[string][]string{c.Path("v1", "secrets"): kit.BuiltInTypes,
			c.Path(groupVersion, "widgets"): kit.CustomTypes} {
			want := c.Get(t, path+"?limit=2").OK(t).Object(t)
			for _, mediaType := range types {
				got := c.GetAs(t, mediaType, path+"?limit=2").OK(t).DecodeAs(t, mediaType)
				// Tokens contain the revision at which they were made.
				for _, list := range []map[string]any{want, got} {
					delete(kit.FieldOf(t, list, "metadata").(map[string]any), "resourceVersion")
					delete(kit.FieldOf(t, list, "metadata").(map[string]any), "continue")
				}
				kit.Equal(t, got, want)
			}
		}
	}},
	{Statement: "subresources are served in every media type of their resource", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("apps/v1", "deployments"), kit.Deployment("d")).Created(t)
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		w := kit.Widget(groupVersion, "w")
		w["spec"] = map[string]any{"replicas": 3}
		c.Post(t, c.Path(groupVersion, "widgets"), w).Created(t)
		for path, types := range map[string][]string{c.Path("apps/v1", "deployments", "d"): kit.BuiltInTypes,
			c.Path(groupVersion, "widgets", "w"): kit.CustomTypes} {
			for _, mediaType := range types {
				scale := c.GetAs(t, mediaType, path+"/scale").OK(t).DecodeAs(t, mediaType)
				kit.Equal(t, []any{scale["kind"], kit.FieldOf(t, scale, "spec", "replicas")}, []any{"Scale", 3.0})
				status := c.GetAs(t, mediaType, path+"/status").OK(t).DecodeAs(t, mediaType)
				kit.Equal(t, kit.FieldOf(t, status, "spec", "replicas"), any(3.0))
			}
		}
	}},
	{Statement: "errors are returned in the requested media type", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for _, mediaType := range kit.BuiltInTypes {
			paths := []string{c.Path("v1", "configmaps", "none"), c.Path(groupVersion, "widgets", "none")}
			if mediaType == kit.Protobuf {
				paths = paths[:1]
			}
			for _, path := range paths {
				status := c.GetAs(t, mediaType, path).Want(t, http.StatusNotFound).DecodeAs(t, mediaType)
				kit.Equal(t, []any{status["kind"], status["apiVersion"], status["reason"], status["code"]},
					[]any{"Status", "v1", "NotFound", 404.0})
			}
			invalid := kit.EncodeAs(t, mediaType, kit.ConfigMap("Not A Name", nil))
			status := c.Send(t, http.MethodPost, c.Path("v1", "configmaps"),
				kit.Header{"Content-Type", mediaType, "Accept", mediaType}, invalid).
				Want(t, http.StatusUnprocessableEntity).DecodeAs(t, mediaType)
			kit.Equal(t, []any{status["reason"], kit.FieldOf(t, status, "details", "name")}, []any{"Invalid", "Not A Name"})
			router := mediaType
			if router == kit.CBOR {
				router = runtime.ContentTypeJSON
			}
			status = c.GetAs(t, mediaType+", application/json;q=0.5", c.ClusterPath("v1", "nothings")).Want(t, http.StatusNotFound).DecodeAs(t, router)
			kit.Equal(t, status["message"], any("the server could not find the requested resource"))
		}
	}},
	{Statement: "discovery is served in JSON, YAML and protobuf, also to clients that prefer CBOR", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		group, _, _ := strings.Cut(groupVersion, "/")
		for path, kind := range map[string]string{
			"/api": "APIVersions", "/apis": "APIGroupList", "/apis/apps": "APIGroup", "/apis/apiregistration.k8s.io": "APIGroup", "/apis/" + group: "APIGroup",
			"/api/v1": "APIResourceList", "/apis/apps/v1": "APIResourceList", "/apis/apiextensions.k8s.io/v1": "APIResourceList",
			"/apis/" + groupVersion: "APIResourceList",
		} {
			for _, mediaType := range kit.BuiltInTypes[:3] {
				kit.Equal(t, c.GetAs(t, mediaType, path).OK(t).DecodeAs(t, mediaType)["kind"], any(kind))
			}
			c.GetAs(t, kit.CBOR, path).Refused(t, http.StatusNotAcceptable, "NotAcceptable")
			for _, accept := range []string{"application/cbor, application/json", "application/cbor, application/json;q=0.9"} {
				kit.Equal(t, c.GetAs(t, accept, path).OK(t).DecodeAs(t, runtime.ContentTypeJSON)["kind"], any(kind))
			}
		}
	}},
	{Statement: "documents that have one media type refuse others with 406, as their Accept header says", Proof: func(t *testing.T, c *kit.Cluster) {
		for path, own := range map[string]string{
			"/version": runtime.ContentTypeJSON, "/version/": runtime.ContentTypeJSON,
			"/.well-known/openid-configuration": runtime.ContentTypeJSON, "/openid/v1/jwks": "application/jwk-set+json",
		} {
			for _, accept := range []string{"", "*/*", own, own + ";pretty=1", "application/cbor, " + own + ";q=0.5", "text/html, */*;q=0.8"} {
				kit.Equal(t, c.GetAs(t, accept, path).OK(t).Header.Get("Content-Type"), own)
			}
			for _, accept := range []string{kit.CBOR, "application/yaml", "text/plain", "application/*", "nothing"} {
				c.GetAs(t, accept, path).Refused(t, http.StatusNotAcceptable, "NotAcceptable", own)
			}
		}
	}},
}

// roundTrip creates, updates and reads an object, which must stay unchanged, and deletes it.
func roundTrip(t testing.TB, c *kit.Cluster, path, in, out string, object map[string]any) {
	t.Helper()
	headers := kit.Header{"Content-Type", in, "Accept", out}
	name := kit.FieldOf(t, object, "metadata", "name").(string)
	same := func(got map[string]any) {
		t.Helper()
		version := kit.FieldOf(t, got, "metadata", "resourceVersion")
		got["metadata"] = map[string]any{"name": kit.FieldOf(t, got, "metadata", "name")}
		object["metadata"] = map[string]any{"name": name}
		kit.Equal(t, got, kit.DecodeFrom(t, in, kit.EncodeAs(t, in, object)))
		object["metadata"].(map[string]any)["resourceVersion"] = version // needed by updates of custom resources
	}
	same(c.Send(t, http.MethodPost, path, headers, kit.EncodeAs(t, in, object)).Created(t).DecodeAs(t, out))
	same(c.Send(t, http.MethodPut, path+"/"+name, headers, kit.EncodeAs(t, in, object)).OK(t).DecodeAs(t, out))
	same(c.GetAs(t, out, path+"/"+name).OK(t).DecodeAs(t, out))
	options := kit.EncodeAs(t, in, map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": []any{"All"}})
	c.Send(t, http.MethodDelete, path+"/"+name, headers, options).OK(t).DecodeAs(t, out)
}

var negotiated = []kit.Promise{
	{Statement: "without an Accept header, or with one that accepts anything, the response is JSON", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, accept := range []string{"", "*/*", "text/html, */*", "application/json", "application/json;charset=utf-8"} {
			c.GetAs(t, accept, c.Path("v1", "configmaps")).OK(t).DecodeAs(t, runtime.ContentTypeJSON)
		}
	}},
	{Statement: "of several types in Accept, the best supported one is chosen", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for _, test := range []struct{ accept, builtIn, custom string }{
			{"application/yaml, application/json", "application/yaml", "application/yaml"},
			{"application/json;q=0.5, application/yaml", "application/yaml", "application/yaml"},
			{"application/yaml;q=0.1, application/cbor;q=0.9, application/json;q=0.5", kit.CBOR, kit.CBOR},
			{"application/x-nothing, application/yaml;q=0.2", "application/yaml", "application/yaml"},
			{"text/plain, */*;q=0.1", "application/json", "application/json"},
			{"application/json, application/*;q=0.1", "application/json", "application/json"},
			// Clients for built-in and custom resources list a fallback.
			{"application/vnd.kubernetes.protobuf, application/json", kit.Protobuf, "application/json"},
			{"application/vnd.kubernetes.protobuf,application/yaml;q=0.8,application/json;q=0.7",
				kit.Protobuf, "application/yaml"},
			{"application/cbor, application/vnd.kubernetes.protobuf;q=0.9", kit.CBOR, kit.CBOR},
		} {
			c.GetAs(t, test.accept, c.Path("v1", "configmaps")).OK(t).DecodeAs(t, test.builtIn)
			c.GetAs(t, test.accept, c.Path(groupVersion, "widgets")).OK(t).DecodeAs(t, test.custom)
		}
	}},
	{Statement: "a request without a supported type in Accept gets 406 and a list of the supported types", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		const builtIn = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"
		const streams = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq"
		// The list for custom resources includes protobuf, which is only for metadata.
		const custom = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"
		for _, accept := range []string{"text/plain", "text/*", "application/xml", "application/cbor-seq, text/plain"} {
			want := builtIn
			if strings.Contains(accept, "cbor-seq") {
				want = custom // it is a type of watches, on the same path
			}
			c.GetAs(t, accept, c.Path("v1", "configmaps")).Refused(t, http.StatusNotAcceptable, "NotAcceptable", want)
			c.GetAs(t, accept, c.Path(groupVersion, "widgets")).Refused(t, http.StatusNotAcceptable, "NotAcceptable", custom)
		}
		c.GetAs(t, "text/plain", c.Path("v1", "configmaps", "x")).
			Refused(t, http.StatusNotAcceptable, "NotAcceptable", builtIn)
		c.GetAs(t, "text/plain", c.Path("v1", "configmaps")).
			Refused(t, http.StatusNotAcceptable, "NotAcceptable", builtIn+streams)
		c.GetAs(t, kit.Protobuf, c.Path(groupVersion, "widgets")).Want(t, http.StatusNotAcceptable).DecodeAs(t, kit.Protobuf)
	}},
	{Statement: "a range of types is accepted for custom resources, and not for built-in ones", Proof: func(t *testing.T, c *kit.Cluster) {
		// As in kube-apiserver, whose router for built-in resources supports no range but */*.
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		c.GetAs(t, "application/*", c.Path("v1", "configmaps")).Refused(t, http.StatusNotAcceptable, "NotAcceptable")
		c.GetAs(t, "application/*", c.Path(groupVersion, "widgets")).OK(t).DecodeAs(t, runtime.ContentTypeJSON)
	}},
	{Statement: "a body of another type gets 415 and a list of the accepted types", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		const format = "the body of the request was in an unknown format - accepted media types include: "
		const builtIn = format + "application/json, application/yaml, application/vnd.kubernetes.protobuf, application/cbor"
		send := func(method, path, mediaType string) kit.Answer {
			return c.Send(t, method, path, kit.Header{"Content-Type", mediaType}, "{}")
		}
		for _, mediaType := range []string{"text/plain", "application/x-www-form-urlencoded", "no type", "application/cbor-seq"} {
			send(http.MethodPost, c.Path("v1", "configmaps"), mediaType).
				Refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType", builtIn)
			send(http.MethodPut, c.Path("v1", "configmaps", "x"), mediaType).
				Refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType", builtIn)
			send(http.MethodDelete, c.Path("v1", "configmaps", "x"), mediaType).
				Refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType", format)
			send(http.MethodPatch, c.Path("v1", "configmaps", "x"), mediaType).
				Refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
			send(http.MethodPost, c.Path(groupVersion, "widgets"), mediaType).
				Refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType", builtIn)
			send(http.MethodPatch, c.Path(groupVersion, "widgets", "x"), mediaType).
				Refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType",
					format+"application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, application/apply-patch+cbor")
		}
		// kube-apiserver closes the connection.
		send(http.MethodPost, c.Path(groupVersion, "widgets"), kit.Protobuf).
			Refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType",
				format+"application/json, application/yaml, application/cbor")
	}},
	{Statement: "a body without a type is read as JSON", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		c.Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Content-Type", ""}, kit.ConfigMap("a", nil)).Created(t)
		c.Send(t, http.MethodPost, c.Path(groupVersion, "widgets"), kit.Header{"Content-Type", ""}, kit.Widget(groupVersion, "a")).Created(t)
		c.Send(t, http.MethodPut, c.Path("v1", "configmaps", "a"), kit.Header{"Content-Type", ""}, "kind: ConfigMap").
			BadRequest(t, "couldn't get version/kind; json parse error")
	}},
	{Statement: "parameters of a Content-Type do not matter", Proof: func(t *testing.T, c *kit.Cluster) {
		for i, mediaType := range []string{"application/json; charset=utf-8", "application/json;charset=ISO-8859-1", "application/json;stream=watch", "Application/JSON"} {
			c.Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Content-Type", mediaType},
				kit.ConfigMap(fmt.Sprint("c", i), nil)).Created(t)
		}
		body := kit.EncodeAs(t, kit.Protobuf, kit.ConfigMap("p", nil))
		c.Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Content-Type", kit.Protobuf + ";stream=watch"}, body).Created(t)
	}},
	{Statement: "a body that does not match its type is rejected with 400", Proof: func(t *testing.T, c *kit.Cluster) {
		object := kit.ConfigMap("a", nil)
		for _, test := range []struct {
			mediaType string
			body      []byte
		}{
			{runtime.ContentTypeJSON, kit.EncodeAs(t, kit.CBOR, object)},
			{runtime.ContentTypeJSON, kit.EncodeAs(t, kit.Protobuf, object)},
			{runtime.ContentTypeJSON, kit.EncodeAs(t, runtime.ContentTypeYAML, object)},
			{runtime.ContentTypeYAML, kit.EncodeAs(t, kit.CBOR, object)},
			{kit.Protobuf, kit.EncodeAs(t, runtime.ContentTypeJSON, object)},
			{kit.CBOR, kit.EncodeAs(t, runtime.ContentTypeJSON, object)},
			{kit.CBOR, kit.EncodeAs(t, kit.Protobuf, object)},
			{kit.CBOR, nil},
		} {
			c.Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Content-Type", test.mediaType}, test.body).BadRequest(t)
		}
	}},
	{Statement: "JSON is indented on request, and for browsers, curl and wget", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		c.Post(t, c.Path(groupVersion, "widgets"), kit.Widget(groupVersion, "a")).Created(t)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		for _, path := range []string{
			c.Path("v1", "configmaps"), c.Path("v1", "configmaps", "a"), c.Path("v1", "configmaps", "none"),
			c.Path(groupVersion, "widgets"), c.Path(groupVersion, "widgets", "a"), "/apis/apps", "/apis",
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
				a := c.Send(t, http.MethodGet, path+test.query, kit.Header{"User-Agent", test.agent, "Accept", test.accept}, nil)
				if object := a.DecodeAs(t, runtime.ContentTypeJSON); strings.HasSuffix(path, "/a") {
					kit.Equal(t, object, c.Get(t, path).Object(t))
				}
				if got := bytes.Contains(a.Body, []byte("\n  ")); got != test.indented {
					t.Errorf("%s with %+v is indented: %t", path, test, got)
				}
			}
		}
	}},
}
