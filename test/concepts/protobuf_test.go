package concepts

import (
	"bytes"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// envelopeOf takes Kubernetes' protobuf encoding apart: a magic number and a message around that of the object.
func envelopeOf(t testing.TB, data []byte) (envelope runtime.Unknown) {
	t.Helper()
	message, ok := bytes.CutPrefix(data, []byte("k8s\x00"))
	if !ok {
		t.Fatalf("not the magic number but %q", data[:min(len(data), 4)])
	}
	if err := envelope.Unmarshal(message); err != nil {
		t.Fatal(err)
	}
	return envelope
}

// envelop puts together what envelopeOf takes apart.
func envelop(t testing.TB, envelope runtime.Unknown) []byte {
	t.Helper()
	message, err := envelope.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), message...)
}

// "Kubernetes Protobuf encoding"
var protobufEnvelopes = []promise{
	{"protobuf comes in an envelope that begins with a magic number and tells the kind", func(t *testing.T, c *cluster) {
		c.post(t, c.path("v1", "configmaps"), configMap("a", map[string]string{"k": "v"})).want(t, http.StatusCreated)
		for path, kind := range map[string]string{
			c.path("v1", "configmaps", "a"): "ConfigMap", c.path("v1", "configmaps"): "ConfigMapList",
			c.path("v1", "configmaps", "none"): "Status",
		} {
			envelope := envelopeOf(t, c.getAs(t, protobufType, path).Body)
			equal(t, envelope.TypeMeta, runtime.TypeMeta{APIVersion: "v1", Kind: kind})
			if len(envelope.Raw) == 0 || envelope.ContentEncoding != "" || envelope.ContentType != "" {
				t.Errorf("the envelope is %+v", envelope)
			}
		}
	}},
	{"protobuf in a wrong envelope is refused with 400", func(t *testing.T, c *cluster) {
		right := encodeAs(t, protobufType, configMap("a", map[string]string{"k": "v"}))
		changed := func(change func(*runtime.Unknown)) []byte {
			envelope := envelopeOf(t, right)
			change(&envelope)
			return envelop(t, envelope)
		}
		for _, test := range []struct {
			what, message string
			body          []byte
		}{
			{"nothing", "empty data", nil},
			{"no envelope", "expected prefix [107 56 115 0]", envelopeOf(t, right).Raw},
			{"no magic number", "expected prefix [107 56 115 0]", right[4:]},
			{"half of the magic number", "expected prefix [107 56 115 0]", right[:2]},
			{"another version's magic number", "expected prefix [107 56 115 0]", append([]byte("k8s\x01"), right[4:]...)},
			{"nothing but the magic number", "empty body", right[:4]},
			{"cut off", "unexpected EOF", right[:len(right)-20]},
			{"garbage in the envelope", "", append([]byte("k8s\x00"), "garbage"...)},
			{"garbage in the message", "", changed(func(e *runtime.Unknown) { e.Raw = []byte("garbage") })},
			{"a message that is cut off", "unexpected EOF",
				changed(func(e *runtime.Unknown) { e.Raw = e.Raw[:len(e.Raw)-1] })},
			{"an unknown kind", `no kind "Nothing" is registered for version "v1"`,
				changed(func(e *runtime.Unknown) { e.Kind = "Nothing" })},
			{"an unknown version", `no kind "ConfigMap" is registered for version "v7"`,
				changed(func(e *runtime.Unknown) { e.APIVersion = "v7" })},
			{"another kind", "cannot be handled as a ConfigMap", changed(func(e *runtime.Unknown) { e.Kind = "Secret" })},
		} {
			t.Log(test.what) // the last of these is what a failure is about
			c.send(t, http.MethodPost, c.path("v1", "configmaps"), header{"Content-Type", protobufType}, test.body).
				refused(t, http.StatusBadRequest, "BadRequest", test.message)
		}
	}},
	{"what is in the envelope is taken for protobuf, whatever contentType says", func(t *testing.T, c *cluster) {
		// The document has the field for the encoding of raw. No version of kube-apiserver reads it.
		envelope := envelopeOf(t, encodeAs(t, protobufType, configMap("a", nil)))
		envelope.ContentType = runtime.ContentTypeJSON
		c.send(t, http.MethodPost, c.path("v1", "configmaps"), header{"Content-Type", protobufType}, envelop(t, envelope)).
			want(t, http.StatusCreated)
		envelope.Raw = []byte(`{"metadata":{"name":"b"}}`)
		c.send(t, http.MethodPost, c.path("v1", "configmaps"), header{"Content-Type", protobufType}, envelop(t, envelope)).
			refused(t, http.StatusBadRequest, "BadRequest")
	}},
	{"an envelope without kind and version is taken for an object of the path's kind", func(t *testing.T, c *cluster) {
		envelope := envelopeOf(t, encodeAs(t, protobufType, configMap("a", nil)))
		envelope.TypeMeta = runtime.TypeMeta{}
		c.send(t, http.MethodPost, c.path("v1", "configmaps"), header{"Content-Type", protobufType}, envelop(t, envelope)).
			want(t, http.StatusCreated)
		equal(t, c.get(t, c.path("v1", "configmaps", "a")).want(t, http.StatusOK).text(t, "kind"), "ConfigMap")
	}},
}
