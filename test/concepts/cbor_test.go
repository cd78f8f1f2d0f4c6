package concepts

import (
	"bytes"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

const applyCBOR = string(types.ApplyCBORPatchType)

// Section "CBOR resource encoding". What all media types have in common is among TestMediaTypes. With -against, this is of
// a kube-apiserver with --feature-gates=CBORServingAndStorage=true.
func TestCBOR(t *testing.T) {
	prove(t, nil,
		promise{"CBOR begins with the tag that tells it from other encodings", func(t *testing.T, c *cluster) {
			for _, path := range []string{c.path("v1", "configmaps"), c.path("v1", "configmaps", "none"), "/apis/apps/v1"} {
				if a := c.getAs(t, cborType, path); !bytes.HasPrefix(a.Body, []byte{0xd9, 0xd9, 0xf7}) {
					t.Errorf("%s begins with %x", path, a.Body[:3])
				}
			}
		}},
		promise{"a watch in CBOR is a sequence, and says so in its Content-Type", func(t *testing.T, c *cluster) {
			groupVersion := c.widgets(t, anySchema)
			for path, object := range map[string]map[string]any{
				c.path("v1", "configmaps"): configMap("a", nil), c.path(groupVersion, "widgets"): widget(groupVersion, "a"),
			} {
				start := c.get(t, path).version(t)
				c.post(t, path, object).want(t, http.StatusCreated)
				c.delete(t, path+"/a").want(t, http.StatusOK)
				a := c.watchAs(t, 2, header{"Accept", cborType}, path+"?watch=1&fieldSelector=metadata.name=a&resourceVersion="+start)
				equal(t, a.Header.Get("Content-Type"), runtime.ContentTypeCBORSequence)
				var got []any
				for _, e := range a.events(t) {
					got = append(got, e.Type, e.name(), e.Object["kind"])
				}
				equal(t, got, []any{"ADDED", "a", object["kind"], "DELETED", "a", object["kind"]})
			}
		}},
		promise{"configurations are applied in CBOR", func(t *testing.T, c *cluster) {
			groupVersion := c.widgets(t, anySchema)
			w := with(widget(groupVersion, "a"), "red", "spec", "colour")
			for path, object := range map[string]map[string]any{
				c.path("v1", "configmaps", "a"):      configMap("a", map[string]string{"k": "v"}),
				c.path(groupVersion, "widgets", "a"): w,
			} {
				apply := func(object map[string]any, manager string) answer {
					return c.send(t, http.MethodPatch, path+"?fieldManager="+manager,
						header{"Content-Type", applyCBOR, "Accept", cborType}, encodeAs(t, cborType, object))
				}
				created := apply(object, "one").want(t, http.StatusCreated).in(t, cborType)
				fields := created["metadata"].(map[string]any)["managedFields"].([]any)[0].(map[string]any)
				equal(t, []any{fields["manager"], fields["operation"]}, []any{"one", "Apply"})
				changed := manifest("%s", strings.NewReplacer(`"v"`, `"w"`, `"red"`, `"blue"`).
					Replace(string(asYAML(object))))
				conflict := apply(changed, "two").want(t, http.StatusConflict).in(t, cborType)
				equal(t, conflict["reason"], any("Conflict"))
				apply(changed, "two&force=true").want(t, http.StatusOK)
				delete(object, "data")
				delete(object, "spec")
				apply(object, "two").want(t, http.StatusOK)
			}
		}},
		promise{"the other patches have no form in CBOR", func(t *testing.T, c *cluster) {
			c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).want(t, http.StatusCreated)
			for _, kind := range []string{cborType, "application/merge-patch+cbor", "application/json-patch+cbor", "application/strategic-merge-patch+cbor"} {
				c.patch(t, kind, c.path("v1", "configmaps", "a"), encodeAs(t, cborType, configMap("a", nil))).
					refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
			}
			a := c.send(t, http.MethodPatch, c.path("v1", "configmaps", "a"),
				header{"Content-Type", mergePatch, "Accept", cborType}, `{"data":{"k":"v"}}`)
			equal(t, field(t, a.want(t, http.StatusOK).in(t, cborType), "data", "k"), any("v"))
		}},
		promise{"CBOR that is no object, or has a field twice, is refused with 400", func(t *testing.T, c *cluster) {
			groupVersion := c.widgets(t, anySchema)
			for what, body := range map[string][]byte{
				"nothing": {}, "an array": {0x80}, "a number": {0x01},
				"cut off":                    encodeAs(t, cborType, configMap("a", nil))[:20],
				"two items":                  append(encodeAs(t, cborType, configMap("a", nil)), 0xa0),
				"a field twice":              append([]byte{0xa2}, bytes.Repeat([]byte("dkindiConfigMap"), 2)...),
				"a length that is not there": {0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
				"too deep":                   bytes.Repeat([]byte{0x81}, 1<<16),
			} {
				t.Log(what)
				for _, path := range []string{c.path("v1", "configmaps"), c.path(groupVersion, "widgets")} {
					c.send(t, http.MethodPost, path, header{"Content-Type", cborType}, body).want(t, http.StatusBadRequest)
					c.send(t, http.MethodPatch, path+"/a?fieldManager=m", header{"Content-Type", applyCBOR}, body).
						want(t, http.StatusBadRequest)
				}
			}
		}},
		promise{"unknown fields of built-in objects in CBOR are ignored, warned of or refused, as fieldValidation says", func(t *testing.T, c *cluster) {
			// Those of custom objects are dropped without a word, by kube-apiserver v1.36 too.
			body := encodeAs(t, cborType, with(configMap("a", nil), "x", "colour"))
			create := func(validation string) answer {
				return c.send(t, http.MethodPost, c.path("v1", "configmaps")+"?dryRun=All&fieldValidation="+validation,
					header{"Content-Type", cborType}, body)
			}
			create("Strict").refused(t, http.StatusBadRequest, "BadRequest", "strict decoding error: cbor: found unknown field")
			for validation, warned := range map[string]bool{"Warn": true, "Ignore": false} {
				a := create(validation).want(t, http.StatusCreated)
				if got := strings.Contains(a.Header.Get("Warning"), "unknown field"); got != warned {
					t.Errorf("%s: the warning is %q", validation, a.Header.Get("Warning"))
				}
			}
		}},
		promise{"what was written in CBOR is read by those who know only JSON, and the other way round", func(t *testing.T, c *cluster) {
			// kube-apiserver stores custom resources as CBOR then; here rows stay JSON, which package serve tests.
			groupVersion := c.widgets(t, anySchema)
			w := widget(groupVersion, "w")
			w["spec"] = manifest(`{int: 3, float: 2.5, whole: 2.0, text: "2026-01-01T00:00:00Z", bytes: AAH/, list: [null, true, ""]}`)
			c.send(t, http.MethodPost, c.path(groupVersion, "widgets"), header{"Content-Type", cborType},
				encodeAs(t, cborType, w)).want(t, http.StatusCreated)
			equal(t, c.get(t, c.path(groupVersion, "widgets", "w")).object(t)["spec"],
				decodeFrom(t, cborType, encodeAs(t, cborType, w))["spec"])
			out, ok := c.kubectl(t, "", "get", "widgets."+strings.Split(groupVersion, "/")[0], "w", "-o", "jsonpath={.spec.int} {.spec.text}")
			if !ok || out != "3 2026-01-01T00:00:00Z" {
				t.Errorf("kubectl prints %s", out)
			}
		}},
	)
}

// TestWithoutCBOR is the same server with the gate off, as kube-apiserver has it by default.
func TestWithoutCBOR(t *testing.T) {
	prove(t, []string{"--feature-gates=CBORServingAndStorage=false"},
		promise{"without its feature gate there is no CBOR", func(t *testing.T, c *cluster) {
			groupVersion := c.widgets(t, anySchema)
			for _, path := range []string{c.path("v1", "configmaps"), c.path(groupVersion, "widgets"), "/apis/apps/v1"} {
				a := c.getAs(t, cborType, path).refused(t, http.StatusNotAcceptable, "NotAcceptable",
					"application/json, application/yaml, application/vnd.kubernetes.protobuf")
				if strings.Contains(a.text(t, "message"), "cbor") {
					t.Errorf("the message names CBOR: %s", a.Body)
				}
				c.getAs(t, "application/cbor, application/json;q=0.9", path).want(t, http.StatusOK).
					in(t, runtime.ContentTypeJSON)
			}
			c.send(t, http.MethodPost, c.path("v1", "configmaps"), header{"Content-Type", cborType},
				encodeAs(t, cborType, configMap("a", nil))).
				refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
			c.patch(t, applyCBOR, c.path("v1", "configmaps", "a")+"?fieldManager=m",
				encodeAs(t, cborType, configMap("a", nil))).
				refused(t, http.StatusUnsupportedMediaType, "UnsupportedMediaType")
		}},
	)
}
