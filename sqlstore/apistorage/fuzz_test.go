package apistorage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sqube/sqube/test/harness"
)

// FuzzRowKey checks that rowKey keeps keys distinct and inside their resource, and that split is its inverse.
func FuzzRowKey(f *testing.F) {
	for _, key := range []string{"/pods/ns/a", "/pods", "/pods/", "pods/a", "/pods/../secrets/a", "/pods/ns/../../secrets/a", "/podsy/a", "/", "..", "/pods/./a", "/pods/ns/a\x00"} {
		f.Add(key, false)
		f.Add(key, true)
	}
	s := &Storage{prefix: "/pods/"}
	f.Fuzz(func(t *testing.T, key string, recursive bool) {
		row, full, err := s.rowKey(key, recursive)
		if err != nil {
			return
		}
		if !strings.HasSuffix(full, row) || strings.Contains("/"+row+"/", "/../") {
			t.Errorf("%q is row %q of %q", key, row, full)
		}
		if recursive && row != "" && !strings.HasSuffix(row, "/") {
			t.Errorf("%q is the prefix %q, which also matches keys that are not below it", key, row)
		}
		namespace, name := split(row)
		if joined := strings.TrimPrefix(namespace+"/"+name, "/"); joined != strings.TrimPrefix(row, "/") || strings.Contains(name, "/") {
			t.Errorf("row %q is split into %q and %q", row, namespace, name)
		}
	})
}

// as is a transformer whose output the fuzzer chooses, since encryption may produce anything.
type as struct{ stored, data []byte }

func (a as) TransformToStorage(context.Context, []byte, value.Context) ([]byte, error) {
	return a.stored, nil
}

func (a as) TransformFromStorage(_ context.Context, stored []byte, _ value.Context) ([]byte, bool, error) {
	if !bytes.Equal(stored, a.stored) {
		return nil, false, errors.New("another value is stored")
	}
	return a.data, false, nil
}

// FuzzSeal checks that seal stores JSON and that Decrypt restores what seal was given.
func FuzzSeal(f *testing.F) {
	f.Add([]byte(`{"kind":"Pod"}`), []byte(`{"kind":"Pod"}`))
	f.Add([]byte(`{"kind":"Pod"}`), []byte("k8s:enc:aescbc:v1:key:\x00\xff"))
	f.Add([]byte(`{"$encrypted":"eA==","kind":"Widget"}`), []byte(`{"$encrypted":"eA==","kind":"Widget"}`))
	f.Add([]byte(""), []byte(""))
	f.Fuzz(func(t *testing.T, data, transformed []byte) {
		s := &Storage{Config: Config{Transformer: as{transformed, data}}}
		stored, err := s.seal(t.Context(), data, "/pods/a")
		harness.Must(t, err)
		if isObject := bytes.HasPrefix(transformed, []byte("{")); !json.Valid(stored) && (!isObject || json.Valid(transformed)) {
			t.Errorf("%q is stored as %q, which is not JSON", transformed, stored)
		}
		got, _, err := Decrypt(t.Context(), s.Transformer, stored, "/pods/a")
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%q, stored as %q, is decrypted as %q, %v", transformed, stored, got, err)
		}
	})
}

// splice returns the JSON of a row as writeJSON sends it without decoding, or false if it decodes.
func splice(t *testing.T, data []byte, of metav1.TypeMeta) ([]byte, bool) {
	t.Helper()
	o := &Raw{TypeMeta: of, storage: &Storage{}, data: data, revision: 7}
	if _, _, ok := o.split(head(of)); !ok {
		return nil, false
	}
	var out bytes.Buffer
	harness.Must(t, o.writeJSON(nil, &out))
	return out.Bytes(), true
}

var podMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}

// FuzzSpliceObject compares the byte path with encoding/json, for the same object with its resourceVersion.
func FuzzSpliceObject(f *testing.F) {
	f.Add("a", "ns", "", "0c9a7c5e-61fb-4b8e-93a3-1f4b4f6a7f3d", "app", "web")
	f.Add("a}b", "", "a-", "u", "uid", `","uid":"x`)
	f.Add(`","uid":"`, `{"`, "\\", `"`, "é", "<&>\u2028")
	f.Add("", "", "", "", "uid", "x")
	f.Fuzz(func(t *testing.T, name, namespace, generateName, uid, key, value string) {
		pod := &examplev1.Pod{TypeMeta: podMeta, ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, GenerateName: generateName, UID: types.UID(uid), Labels: map[string]string{key: value}, Annotations: map[string]string{value: key},
		}}
		stored, err := json.Marshal(pod)
		harness.Must(t, err)
		pod.ResourceVersion = "7"
		want, err := json.Marshal(pod)
		harness.Must(t, err)
		if got, ok := splice(t, stored, podMeta); ok && string(got) != string(want)+"\n" {
			t.Errorf("%s is sent as\n%s instead of\n%s", stored, got, want)
		}
	})
}

// FuzzSpliceRow checks that the byte path changes nothing but the resourceVersion in a row edited by hand.
func FuzzSpliceRow(f *testing.F) {
	for _, rest := range []string{
		`"metadata":{"name":"a","uid":"u"},"spec":{}}`, `"metadata":{"name":"a","labels":{"x":"y","uid":"u"}}}`, `"metadata":{"name":"a","ownerReferences":[{"kind":"x","uid":"u"}],"uid":"u"}}`,
		`"metadata":{"name":"a"},"spec":{"a":"b","uid":"u"}}`, `"metadata":{"name":"a","x":[1,"uid"],"uid":"u"}}`, `"metadata":{"name":"\"","uid":"\""}}`, `"metadata":{"name":"a", "uid":"u"}}`,
	} {
		f.Add([]byte(rest))
	}
	f.Fuzz(func(t *testing.T, rest []byte) {
		stored := append(head(podMeta), rest...)
		before := object(stored)
		if before == nil {
			return // not a possible row
		}
		got, ok := splice(t, stored, podMeta)
		if !ok {
			return
		}
		after := object(got)
		metadata, _ := after["metadata"].(map[string]any)
		if metadata["resourceVersion"] != "7" {
			t.Fatalf("%s is sent as %s", stored, got)
		}
		delete(metadata, "resourceVersion")
		if !reflect.DeepEqual(after, before) {
			t.Errorf("%s is sent as %s", stored, got)
		}
	})
}

// object decodes JSON without a resourceVersion and without duplicate names, or returns nil.
func object(text []byte) map[string]any {
	var decoded map[string]any
	if !utf8.Valid(text) || json.Unmarshal(text, &decoded) != nil {
		return nil
	}
	again, err := json.Marshal(decoded)
	var compact bytes.Buffer
	if err != nil || json.Compact(&compact, text) != nil || bytes.Count(again, []byte(`":`)) != bytes.Count(compact.Bytes(), []byte(`":`)) {
		return nil
	}
	return decoded
}

// FuzzRawJSON checks that JSON in an object is stored as it is, decoded and sent in protobuf as it is, and sent in JSON as
// encoding/json writes it.
func FuzzRawJSON(f *testing.F) {
	for _, raw := range []string{`{"a":1}`, `{ "a" : "<" }`, "{\"a\":1}\n ", " 1", `"\/0"`, `"\\\/1"`, `"\ufffd"`, "\"\u2028\"", `{"a":"b c"}`, "\"\xff\"", "null", "{"} {
		f.Add([]byte(raw), []byte(`{"f:a<b":{}}`), `"\/0`)
		f.Add([]byte(raw), []byte(`{"f:a":{}}`), `\ufffd`)
	}
	kind := metav1.TypeMeta{Kind: "ControllerRevision", APIVersion: "apps/v1"}
	kinds := &Kinds{Scheme: scheme.Scheme}
	protobuf := kinds.protobufKindOf(&appsv1.ControllerRevision{}, appsv1.SchemeGroupVersion)
	s := &Storage{Config: Config{Codec: scheme.Codecs.LegacyCodec(appsv1.SchemeGroupVersion)}, protobuf: protobuf}
	f.Fuzz(func(t *testing.T, raw, fields []byte, text string) {
		if !utf8.ValidString(text) || !json.Valid(raw) || string(bytes.TrimSpace(raw)) == "null" || !json.Valid(fields) || fields[0] != '{' {
			return
		}
		revision := &appsv1.ControllerRevision{TypeMeta: kind, Data: runtime.RawExtension{Raw: raw}, ObjectMeta: metav1.ObjectMeta{
			Name: "a", UID: "u", Annotations: map[string]string{text: text}, ManagedFields: []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(string(fields))}},
		}}
		stored, err := s.encode(revision.DeepCopy())
		if !utf8.Valid(raw) || !utf8.Valid(fields) {
			return // refused, unless encoders would not change it
		}
		if err != nil || !json.Valid(stored) || !bytes.Contains(stored, raw) {
			t.Fatalf("%q, %q, %q is stored as %q, %v", raw, fields, text, stored, err)
		}
		var decoded appsv1.ControllerRevision
		revision.ResourceVersion = "7"
		if err := s.decode(stored, &decoded, 7); err != nil || !reflect.DeepEqual(decoded.Data, revision.Data) || !reflect.DeepEqual(decoded.ManagedFields, revision.ManagedFields) {
			t.Errorf("%q is decoded as %+v instead of %+v, %v", stored, decoded, revision, err)
		}
		want, err := revision.Marshal()
		harness.Must(t, err)
		if got, _, err := protobuf.forms().message.Append(nil, stored, "7"); err != nil || !bytes.Equal(got, want) {
			t.Errorf("in protobuf it is\n%q instead of\n%q, %v", got, want, err)
		}
		if want, err = json.Marshal(revision); err != nil {
			t.Fatal(err)
		}
		if got, ok := splice(t, stored, kind); !ok || string(got) != string(want)+"\n" {
			t.Errorf("in JSON it is\n%s instead of\n%s", got, want)
		}
	})
}

// FuzzEnvelope compares unwrap and typeMeta with upstream's protobuf decoder and encoder.
func FuzzEnvelope(f *testing.F) {
	for _, u := range []runtime.Unknown{
		{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: []byte("message")}, {}, {Raw: []byte{0x12, 0x03, 'a', 'b', 'c'}, ContentType: "x", ContentEncoding: "y"},
	} {
		data, err := u.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(bytes.Clone(envelopeMagic), data...))
	}
	f.Add([]byte("k8s\x00\x12\x05abc"))
	f.Add([]byte("k8s\x00\x12\x01a\x12\x01b"))
	f.Fuzz(func(t *testing.T, envelope []byte) {
		message, err := unwrap(envelope)
		var u runtime.Unknown
		rest, ok := bytes.CutPrefix(envelope, envelopeMagic)
		if !ok || u.Unmarshal(rest) != nil {
			if !ok && err == nil {
				t.Errorf("%q is accepted as an envelope", envelope)
			}
			return
		}
		if err == nil && !bytes.Equal(message, u.Raw) {
			t.Errorf("%q contains %q instead of %q", envelope, message, u.Raw)
		}
		if want, err := u.TypeMeta.Marshal(); err != nil || !bytes.Equal(typeMeta(metav1.TypeMeta{Kind: u.Kind, APIVersion: u.APIVersion}), want) {
			t.Errorf("the type of %q is not encoded as %q, %v", envelope, want, err)
		}
	})
}
