package transcode

import (
	"bytes"
	"encoding/json"
	corev1 "k8s.io/api/core/v1"
	"math/rand"
	"os"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	utiljson "sigs.k8s.io/json"

	"github.com/sqube/sqube/test/harness"
)

// TestAllTypes turns random objects of every type into messages, which must be those of the generated code, and back.
func TestAllTypes(t *testing.T) {
	fill := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs), rand.NewSource(1), scheme.Codecs)
	types := 0
	defer func() {
		if types < 100 {
			t.Errorf("only %d types", types)
		}
	}()
	for gvk := range scheme.Scheme.AllKnownTypes() {
		obj, err := scheme.Scheme.New(gvk)
		harness.Must(t, err)
		if _, ok := obj.(metav1.ObjectMetaAccessor); !ok {
			continue
		}
		if _, ok := obj.(marshaler); !ok {
			continue
		}
		types++
		t.Run(gvk.String(), func(t *testing.T) {
			for range 40 {
				fresh, _ := scheme.Scheme.New(gvk)
				fill.Fill(fresh)
				fresh.GetObjectKind().SetGroupVersionKind(gvk)
				fresh.(metav1.ObjectMetaAccessor).GetObjectMeta().SetResourceVersion("")
				compare(t, fresh)
			}
		})
	}
}

// compare compares the message of an object with that of the generated code.
func compare(t *testing.T, obj runtime.Object) {
	t.Helper()
	data, err := json.Marshal(obj)
	harness.Must(t, err)
	decoded := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(data, decoded); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	decoded.(metav1.ObjectMetaAccessor).GetObjectMeta().SetResourceVersion("12345")
	want, err := decoded.(marshaler).Marshal()
	harness.Must(t, err)
	typ, err := For(obj)
	harness.Must(t, err)
	got, exact, err := typ.Append([]byte("before"), data, "12345")
	if err != nil {
		if !bytes.Contains(data, []byte(":null")) { // maps may not have nulls
			t.Errorf("%v: %s", err, data)
		}
		return
	}
	got, _ = bytes.CutPrefix(got, []byte("before"))
	if !bytes.Equal(got, want) {
		t.Fatalf("%s\nbecomes\n%q\ninstead of\n%q", data, got, want)
	}
	decoded.(metav1.ObjectMetaAccessor).GetObjectMeta().SetManagedFields(nil)
	if want, err = decoded.(marshaler).Marshal(); err != nil {
		t.Fatal(err)
	}
	cut, err := typ.Filter(nil)
	harness.Must(t, err)
	less, err := cut.Append(nil, got)
	unmanaged := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
	if err == nil {
		err = unmanaged.(interface{ Unmarshal([]byte) error }).Unmarshal(less)
	}
	harness.Must(t, err)
	if less, err = unmanaged.(marshaler).Marshal(); err != nil || !bytes.Equal(less, want) {
		t.Fatalf("%s\nbecomes\n%q, %v\ninstead of\n%q", data, less, err, want)
	}
	decoded = reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
	harness.Must(t, utiljson.UnmarshalCaseSensitivePreserveInts(data, decoded))
	decoded.(metav1.ObjectMetaAccessor).GetObjectMeta().SetResourceVersion("12345")
	if exact {
		again := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
		harness.Must(t, again.(interface{ Unmarshal([]byte) error }).Unmarshal(got))
		again.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
		if !apiequality.Semantic.DeepEqual(again, decoded) {
			t.Fatalf("%s unmarshals to a different object", data)
		}
		text, err := json.Marshal(again)
		harness.Must(t, err)
		if whole, err := json.Marshal(decoded); err != nil || !bytes.Equal(text, whole) {
			t.Fatalf("%s\nbecomes\n%s, %v", whole, text, err)
		}
	}
}

func TestField(t *testing.T) {
	for data, want := range map[string]string{
		`{"metadata":{"a":1},"b":`:                  `{"a":1}`,
		` { "b" : [ "}" ] , "metadata" : "x\"y" } `: `"x\"y"`,
		`{"m\u0065tadata":null,"metadata":1}`:       `null`,
		`{"b":{"metadata":1}}`:                      ``,
		`{}`:                                        ``,
		`[]`:                                        ``,
		`{"metadata":{"a":1}`:                       `{"a":1}`,
		`{"metadata":{"a":1`:                        ``,
		`{"b":1 "metadata":{}}`:                     ``,
	} {
		if got, err := Field([]byte(data), "metadata"); string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s has %q, %v; want %q", data, got, err, want)
		}
	}
}

// TestRefusals reads JSON that no encoder wrote.
func TestRefusals(t *testing.T) {
	typ, err := For(&corev1.ConfigMap{})
	harness.Must(t, err)
	for _, data := range []string{
		``, `{`, `[]`, `null`, `"a"`, `{}`, `{"metadata":null}`, `{"metadata":{}}x`, `{"metadata":{}`, `{"metadata":{},}`, `{"metadata":[]}`,
		`{"metadata":{"name":1}}`, `{"metadata":{"name":"a","name":"b"}}`, `{"metadata":{"generation":1.5}}`, `{"metadata":{"generation":1e3}}`,
		`{"metadata":{"generation":99999999999999999999}}`, `{"metadata":{"creationTimestamp":"2026-02-30T00:00:00Z"}}`,
		`{"metadata":{"creationTimestamp":"2026-02-03T00:00:00.5Z"}}`, `{"metadata":{"name":"\ud800"}}`, "{\"metadata\":{\"name\":\"\xff\"}}",
		`{"metadata":{"name":"\x"}}`, `{"metadata":{"name":"a`, `{"metadata":{"labels":{"b":"","a":""}}}`, `{"metadata":{"labels":{"a":"","a":""}}}`,
		`{"metadata":{"finalizers":[null]}}`, `{"metadata":{},"binaryData":{"a":"%"}}`, `{"metadata":{},"immutable":1}`, `{"metadata":{},"unknown":}`,
		`{"metadata":{},"unknown":[}`, `{"metadata" {}}`, `{"metadata":{"labels":{"a":null}}}`,
	} {
		if got, _, err := typ.Append(nil, []byte(data), "1"); err == nil {
			t.Errorf("%s becomes %q", data, got)
		}
	}
	for data, same := range map[string]bool{
		` { "metadata" : { "name" : "a" } } `: true, `{"metadata":{"name":"\u0041\n\ud83d\ude00\/"}}`: true, `{"kind":"x","unknown":{"a":[1,{"b":"]"}]},"metadata":{}}`: true,
		`{"metadata":{"finalizers":[]}}`: false, `{"metadata":{"labels":{}}}`: false, `{"metadata":{"resourceVersion":"7"}}`: true,
	} {
		var want corev1.ConfigMap
		harness.Must(t, utiljson.UnmarshalCaseSensitivePreserveInts([]byte(data), &want))
		want.ResourceVersion = "1"
		message, err := want.Marshal()
		harness.Must(t, err)
		if got, exact, err := typ.Append(nil, []byte(data), "1"); err != nil || exact != same || !bytes.Equal(got, message) {
			t.Errorf("%s becomes %q, %v, %v instead of %q", data, got, exact, err, message)
		}
	}
}

// FuzzAppend compares messages with those of decoded objects, for any JSON.
func FuzzAppend(f *testing.F) {
	f.Add([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","labels":{"a":"b"}},"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}}`))
	f.Add([]byte(`{"metadata":{"managedFields":[{"fieldsV1":{"f:a":{}}}]},"spec":{"volumes":[{"name":"v","emptyDir":{}}],"containers":[{"readinessProbe":{"tcpSocket":{"port":80}}}]}}`))
	typ, err := For(&corev1.Pod{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		data = bytes.TrimRight(data, " ") // else spaces belong to verbatim JSON
		got, _, err := typ.Append(nil, data, "7")
		if err != nil || !json.Valid(data) {
			return
		}
		var pod corev1.Pod
		if err := utiljson.UnmarshalCaseSensitivePreserveInts(data, &pod); err != nil {
			t.Fatalf("%s is accepted but can't be decoded: %v", data, err)
		}
		pod.ResourceVersion = "7"
		if want, err := pod.Marshal(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s\nbecomes\n%q\ninstead of\n%q, %v", data, got, want, err)
		}
	})
}

// BenchmarkAppend compares Append with what it replaces.
func BenchmarkAppend(b *testing.B) {
	data, err := os.ReadFile("testdata/pod.json")
	harness.Must(b, err)
	typ, err := For(&corev1.Pod{})
	harness.Must(b, err)
	var buffer []byte
	b.Run("transcode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if buffer, _, err = typ.Append(buffer[:0], data, "7"); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unmarshal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var pod corev1.Pod
			harness.Must(b, pod.Unmarshal(buffer))
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			var pod corev1.Pod
			harness.Must(b, utiljson.UnmarshalCaseSensitivePreserveInts(data, &pod))
		}
	})
}
