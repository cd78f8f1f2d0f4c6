package mediatypes

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/test/concepts/kit"
)

const applyCBOR = string(types.ApplyCBORPatchType)

// Section "CBOR resource encoding". What all media types have in common is in TestMediaTypes. With -against, kube-apiserver
// needs --feature-gates=CBORServingAndStorage=true.
var cborResponses = []kit.Promise{
	{Statement: "CBOR begins with the tag that distinguishes it from other encodings", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, path := range []string{c.Path("v1", "configmaps"), c.Path("v1", "configmaps", "none")} {
			if a := c.GetAs(t, kit.CBOR, path); !bytes.HasPrefix(a.Body, []byte{0xd9, 0xd9, 0xf7}) {
				t.Errorf("%s begins with %x", path, a.Body[:3])
			}
		}
	}},
	{Statement: "a watch in CBOR is a sequence, as its Content-Type says", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for path, object := range map[string]map[string]any{
			c.Path("v1", "configmaps"): kit.ConfigMap("a", nil), c.Path(groupVersion, "widgets"): kit.Widget(groupVersion, "a"),
		} {
			start := c.Get(t, path).ResourceVersion(t)
			c.Post(t, path, object).Created(t)
			c.Delete(t, path+"/a").OK(t)
			a := c.WatchAs(t, 2, kit.Header{"Accept", kit.CBOR}, path+"?watch=1&fieldSelector=metadata.name=a&resourceVersion="+start)
			kit.Equal(t, a.Header.Get("Content-Type"), runtime.ContentTypeCBORSequence)
			var got []any
			for _, e := range a.Events(t) {
				got = append(got, e.Type, e.Name(), e.Object["kind"])
			}
			kit.Equal(t, got, []any{"ADDED", "a", object["kind"], "DELETED", "a", object["kind"]})
		}
	}},
	{Statement: "configurations are applied in CBOR", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		w := kit.With(kit.Widget(groupVersion, "a"), "red", "spec", "colour")
		for path, object := range map[string]map[string]any{
			c.Path("v1", "configmaps", "a"):      kit.ConfigMap("a", map[string]string{"k": "v"}),
			c.Path(groupVersion, "widgets", "a"): w,
		} {
			apply := func(object map[string]any, manager string) kit.Answer {
				return c.Send(t, http.MethodPatch, path+"?fieldManager="+manager,
					kit.Header{"Content-Type", applyCBOR, "Accept", kit.CBOR}, kit.EncodeAs(t, kit.CBOR, object))
			}
			created := apply(object, "one").Created(t).DecodeAs(t, kit.CBOR)
			fields := created["metadata"].(map[string]any)["managedFields"].([]any)[0].(map[string]any)
			kit.Equal(t, []any{fields["manager"], fields["operation"]}, []any{"one", "Apply"})
			changed := kit.Manifest("%s", strings.NewReplacer(`"v"`, `"w"`, `"red"`, `"blue"`).
				Replace(string(kit.JSON(object))))
			conflict := apply(changed, "two").Want(t, http.StatusConflict).DecodeAs(t, kit.CBOR)
			kit.Equal(t, conflict["reason"], any("Conflict"))
			apply(changed, "two&force=true").OK(t)
			delete(object, "data")
			delete(object, "spec")
			apply(object, "two").OK(t)
		}
	}},
	{Statement: "other patches have no CBOR encoding", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		for _, kind := range []string{kit.CBOR, "application/merge-patch+cbor", "application/json-patch+cbor", "application/strategic-merge-patch+cbor"} {
			c.Patch(t, kind, c.Path("v1", "configmaps", "a"), kit.EncodeAs(t, kit.CBOR, kit.ConfigMap("a", nil))).
				Refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
		}
		a := c.Send(t, http.MethodPatch, c.Path("v1", "configmaps", "a"),
			kit.Header{"Content-Type", kit.MergePatch, "Accept", kit.CBOR}, `{"data":{"k":"v"}}`)
		kit.Equal(t, kit.FieldOf(t, a.OK(t).DecodeAs(t, kit.CBOR), "data", "k"), any("v"))
	}},
	{Statement: "CBOR that is not an object, or has a duplicate field, is rejected with 400", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		for what, body := range map[string][]byte{
			"nothing": {}, "an array": {0x80}, "a number": {0x01},
			"cut off":                    kit.EncodeAs(t, kit.CBOR, kit.ConfigMap("a", nil))[:20],
			"two items":                  append(kit.EncodeAs(t, kit.CBOR, kit.ConfigMap("a", nil)), 0xa0),
			"a field twice":              append([]byte{0xa2}, bytes.Repeat([]byte("dkindiConfigMap"), 2)...),
			"a length that is not there": {0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
			"too deep":                   bytes.Repeat([]byte{0x81}, 1<<16),
		} {
			t.Log(what)
			for _, path := range []string{c.Path("v1", "configmaps"), c.Path(groupVersion, "widgets")} {
				c.Send(t, http.MethodPost, path, kit.Header{"Content-Type", kit.CBOR}, body).Want(t, http.StatusBadRequest)
				c.Send(t, http.MethodPatch, path+"/a?fieldManager=m", kit.Header{"Content-Type", applyCBOR}, body).
					Want(t, http.StatusBadRequest)
			}
		}
	}},
	{Statement: "unknown fields of built-in objects in CBOR are ignored, warned about or rejected, according to fieldValidation", Proof: func(t *testing.T, c *kit.Cluster) {
		// Those of custom objects are dropped silently, also by kube-apiserver.
		body := kit.EncodeAs(t, kit.CBOR, kit.With(kit.ConfigMap("a", nil), "x", "colour"))
		create := func(validation string) kit.Answer {
			return c.Send(t, http.MethodPost, c.Path("v1", "configmaps")+"?dryRun=All&fieldValidation="+validation,
				kit.Header{"Content-Type", kit.CBOR}, body)
		}
		create("Strict").BadRequest(t, "strict decoding error: cbor: found unknown field")
		for validation, warned := range map[string]bool{"Warn": true, "Ignore": false} {
			a := create(validation).Created(t)
			if got := strings.Contains(a.Header.Get("Warning"), "unknown field"); got != warned {
				t.Errorf("%s: the warning is %q", validation, a.Header.Get("Warning"))
			}
		}
	}},
	{Statement: "objects written in CBOR can be read by clients that only support JSON, and vice versa", Proof: func(t *testing.T, c *kit.Cluster) {
		// kube-apiserver stores custom resources as CBOR then; here rows stay JSON, which package serve tests.
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		w := kit.Widget(groupVersion, "w")
		w["spec"] = kit.Manifest(`{int: 3, float: 2.5, whole: 2.0, text: "2026-01-01T00:00:00Z", bytes: AAH/, list: [null, true, ""]}`)
		c.Send(t, http.MethodPost, c.Path(groupVersion, "widgets"), kit.Header{"Content-Type", kit.CBOR},
			kit.EncodeAs(t, kit.CBOR, w)).Created(t)
		kit.Equal(t, c.Get(t, c.Path(groupVersion, "widgets", "w")).Object(t)["spec"],
			kit.DecodeFrom(t, kit.CBOR, kit.EncodeAs(t, kit.CBOR, w))["spec"])
		out, ok := c.Kubectl(t, "", "get", "widgets."+strings.Split(groupVersion, "/")[0], "w", "-o", "jsonpath={.spec.int} {.spec.text}")
		if !ok || out != "3 2026-01-01T00:00:00Z" {
			t.Errorf("kubectl prints %s", out)
		}
	}},
}

// TestWithoutCBOR tests the server with the gate disabled, the default of kube-apiserver.
func TestWithoutCBOR(t *testing.T) {
	kit.Prove(t, []string{"--feature-gates=CBORServingAndStorage=false"},
		kit.Promise{Statement: "without its feature gate there is no CBOR", Proof: func(t *testing.T, c *kit.Cluster) {
			groupVersion := c.DefineWidgets(t, kit.AnySchema)
			for _, path := range []string{c.Path("v1", "configmaps"), c.Path(groupVersion, "widgets"), "/apis/apps/v1"} {
				a := c.GetAs(t, kit.CBOR, path).Refused(t, http.StatusNotAcceptable, "NotAcceptable",
					"application/json, application/yaml, application/vnd.kubernetes.protobuf")
				if strings.Contains(a.Text(t, "message"), "cbor") {
					t.Errorf("the message names CBOR: %s", a.Body)
				}
				c.GetAs(t, "application/cbor, application/json;q=0.9", path).OK(t).
					DecodeAs(t, runtime.ContentTypeJSON)
			}
			c.Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Content-Type", kit.CBOR},
				kit.EncodeAs(t, kit.CBOR, kit.ConfigMap("a", nil))).
				Refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
			c.Patch(t, applyCBOR, c.Path("v1", "configmaps", "a")+"?fieldManager=m",
				kit.EncodeAs(t, kit.CBOR, kit.ConfigMap("a", nil))).
				Refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
		}},
	)
}
