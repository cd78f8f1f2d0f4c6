package mediatypes

import (
	"bytes"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// envelopeOf decodes the envelope of Kubernetes' protobuf encoding: a magic number and a message around that of the object.
func envelopeOf(t testing.TB, data []byte) (envelope runtime.Unknown) {
	t.Helper()
	message, ok := bytes.CutPrefix(data, []byte("k8s\x00"))
	if !ok {
		t.Fatalf("%q instead of the magic number", data[:min(len(data), 4)])
	}
	harness.Must(t, envelope.Unmarshal(message))
	return envelope
}

// envelop is the reverse of envelopeOf.
func envelop(t testing.TB, envelope runtime.Unknown) []byte {
	t.Helper()
	message := kit.Must(envelope.Marshal())(t)
	return append([]byte("k8s\x00"), message...)
}

// "Kubernetes Protobuf encoding"
var protobufEnvelopes = []kit.Promise{
	{Statement: "protobuf has an envelope with a magic number and the kind", Proof: func(t *testing.T, c *kit.Cluster) {
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", map[string]string{"k": "v"})).Created(t)
		for path, kind := range map[string]string{
			c.Path("v1", "configmaps", "a"): "ConfigMap", c.Path("v1", "configmaps"): "ConfigMapList",
			c.Path("v1", "configmaps", "none"): "Status",
		} {
			envelope := envelopeOf(t, c.GetAs(t, kit.Protobuf, path).Body)
			kit.Equal(t, envelope.TypeMeta, runtime.TypeMeta{APIVersion: "v1", Kind: kind})
			if len(envelope.Raw) == 0 || envelope.ContentEncoding != "" || envelope.ContentType != "" {
				t.Errorf("the envelope is %+v", envelope)
			}
		}
	}},
	{Statement: "protobuf in an invalid envelope is rejected with 400", Proof: func(t *testing.T, c *kit.Cluster) {
		right := kit.EncodeAs(t, kit.Protobuf, kit.ConfigMap("a", map[string]string{"k": "v"}))
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
			t.Log(test.what) // the last one identifies a failure
			c.Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Content-Type", kit.Protobuf}, test.body).BadRequest(t, test.message)
		}
	}},
	{Statement: "the content of the envelope is read as protobuf, whatever contentType says", Proof: func(t *testing.T, c *kit.Cluster) {
		// According to the documentation, the field is the encoding of raw. No version of kube-apiserver reads it.
		envelope := envelopeOf(t, kit.EncodeAs(t, kit.Protobuf, kit.ConfigMap("a", nil)))
		envelope.ContentType = runtime.ContentTypeJSON
		c.Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Content-Type", kit.Protobuf}, envelop(t, envelope)).Created(t)
		envelope.Raw = []byte(`{"metadata":{"name":"b"}}`)
		c.Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Content-Type", kit.Protobuf}, envelop(t, envelope)).BadRequest(t)
	}},
	{Statement: "an envelope without kind and version is read as an object of the path's kind", Proof: func(t *testing.T, c *kit.Cluster) {
		envelope := envelopeOf(t, kit.EncodeAs(t, kit.Protobuf, kit.ConfigMap("a", nil)))
		envelope.TypeMeta = runtime.TypeMeta{}
		c.Send(t, http.MethodPost, c.Path("v1", "configmaps"), kit.Header{"Content-Type", kit.Protobuf}, envelop(t, envelope)).Created(t)
		kit.Equal(t, c.Get(t, c.Path("v1", "configmaps", "a")).OK(t).Text(t, "kind"), "ConfigMap")
	}},
}
