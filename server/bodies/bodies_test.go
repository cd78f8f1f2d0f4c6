package bodies_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/server/bodies"
	"github.com/sqube/sqube/test/harness"
)

const (
	jsonType     = "application/json"
	yamlType     = "application/yaml"
	protobufType = runtime.ContentTypeProtobuf
	cborType     = "application/cbor"
)

// read sends a body through a limiter, and returns what a handler of Pods reads.
func read(t *testing.T, mediaType string, body []byte) ([]byte, error) {
	t.Helper()
	var data []byte
	var err error
	handler := bodies.NewLimiter(3<<20).Limit(func(_ http.ResponseWriter, r *http.Request) {
		data, err = io.ReadAll(r.Body)
	}, bodies.KindsOf(scheme.Scheme, corev1.SchemeGroupVersion.WithKind("Pod")))
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(body))
	request.Header.Set("Content-Type", mediaType)
	handler(httptest.NewRecorder(), request)
	return data, err
}

// encodings are the forms of an object in all media types.
func encodings(t *testing.T, obj runtime.Object) map[string][]byte {
	t.Helper()
	forms := map[string][]byte{}
	var err error
	if forms[jsonType], err = json.Marshal(obj); err != nil {
		t.Fatal(err)
	}
	if forms[yamlType], err = yaml.JSONToYAML(forms[jsonType]); err != nil {
		t.Fatal(err)
	}
	for mediaType, encoder := range map[string]runtime.Encoder{
		protobufType: protobuf.NewSerializer(scheme.Scheme, scheme.Scheme),
		cborType:     cbor.NewSerializer(scheme.Scheme, scheme.Scheme),
	} {
		if forms[mediaType], err = runtime.Encode(encoder, obj); err != nil {
			t.Fatal(err)
		}
	}
	return forms
}

// TestLargeObjects reads the largest objects that people have, in each media type.
func TestLargeObjects(t *testing.T) {
	configMap := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{}}
	owned := map[string]any{}
	for i := range 50000 {
		configMap.Data[fmt.Sprint("key-", i)] = `{"not": ["an", {}, "object\""]}`[:20]
		owned[fmt.Sprint("f:key-", i)] = map[string]any{}
	}
	fields, err := json.Marshal(map[string]any{"f:data": owned})
	harness.Must(t, err)
	configMap.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update", FieldsV1: metav1.NewFieldsV1(string(fields))}}
	slice := &discoveryv1.EndpointSlice{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}}
	for i := range 1000 {
		ready := true
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprint("10.0.0.", i)},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready},
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprint("pod-", i)},
		})
	}
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	for i := range 8000 {
		node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprint("image-", i), "other"}, SizeBytes: 1})
	}
	text := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Data: map[string]string{"script": strings.Repeat("echo [a, b], {c: d}\n", 50000)}}
	for name, obj := range map[string]runtime.Object{"ConfigMap with 50,000 keys": configMap, "EndpointSlice": slice, "Node": node, "ConfigMap of 1 MB": text} {
		for mediaType, body := range encodings(t, obj) {
			if obj == configMap && mediaType == yamlType {
				continue // it is sent as JSON
			}
			if got, err := read(t, mediaType, body); err != nil || !bytes.Equal(got, body) {
				t.Errorf("%s in %s of %d bytes: %v", name, mediaType, len(body), err)
			}
		}
	}
	properties := make([]string, 60000)
	for i := range properties {
		properties[i] = fmt.Sprintf(`"p%d":{"type":"string"}`, i)
	}
	definition := `{"kind":"CustomResourceDefinition","properties":{` + strings.Join(properties, ",") + `}}`
	if _, err := read(t, jsonType, []byte(definition)); err != nil {
		t.Errorf("a definition of %d bytes: %v", len(definition), err)
	}
}

// TestTooMuch reads bodies that are short, but become large.
func TestTooMuch(t *testing.T) {
	const many = 100000
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	pod.Spec.Containers = make([]corev1.Container, many)
	bodies := encodings(t, pod)
	for name, body := range bodies {
		t.Run("empty containers in "+name, func(t *testing.T) { refused(t, name, body) })
	}
	managed := func(fields string) string { return `{"metadata":{"managedFields":[{},{"fieldsV1":` + fields + `}]}}` }
	const managedCBOR = "\xa1\x68metadata\xa1\x6dmanagedFields\x82\xa0\xa1\x68fieldsV1"
	list := func(items string) string { return `{"list":[` + strings.Repeat(items+",", many) + items + `]}` }
	for name, test := range map[string]struct{ mediaType, body string }{
		"nulls":                    {jsonType, list("null")},
		"lists":                    {jsonType, list("[]")},
		"numbers":                  {jsonType, list("1,2,3,4,5,6,7")},
		"after a text with quotes": {jsonType, `["a\\","\"\\\"",` + list("{}") + `]`},
		"after managed fields":     {jsonType, managed(`{"f:a":{}},"fieldsV1":0,"x":` + list("{}"))},
		"in managed fields":        {jsonType, managed(list("{},{},{},{},{},{}"))},
		"JSON as YAML":             {"application/apply-patch+yaml", list("{}")},
		"YAML of text":             {yamlType, "[" + strings.Repeat("a,", many*3) + "]"},
		"aliases of a text":        {yamlType, "a: &a " + strings.Repeat("x", 10000) + "\nb: [" + strings.Repeat("*a,", 1000) + "]"},
		"aliases of aliases":       {yamlType, "a: &a [{},{},{},{},{},{},{},{}]\nb: &b [" + strings.Repeat("*a,", 200) + "]\nc: [" + strings.Repeat("*b,", 200) + "]"},
		"an alias of itself":       {yamlType, "a: &a [*a]"},
		"CBOR of unknown length":   {cborType, "\xd9\xd9\xf7\x9f" + strings.Repeat("\xa0", many) + "\xff"},
		"CBOR in managed fields":   {cborType, managedCBOR + "\x9a\x00\x0f\xff\xff" + strings.Repeat("\xa0", 6*many)},
	} {
		t.Run(name, func(t *testing.T) { refused(t, test.mediaType, []byte(test.body)) })
	}
	t.Run("the name of managed fields elsewhere", func(t *testing.T) {
		for _, body := range []string{
			`{"fieldsV1":%s}`, `{"spec":{"fieldsV1":%s}}`, `{"spec":["fieldsV1",%s]}`, `{"metadata":{"fieldsV1":%s}}`,
			`{"metadata":{"managedFields":{"fieldsV1":%s}}}`, `{"metadata":{"managedFields":[[{"fieldsV1":%s}]]}}`,
			`{"metadata":{"managedFields":[{"x":{"fieldsV1":%s}}]}}`, `{"metadata":{"x":"managedFields","y":[{"fieldsV1":%s}]}}`,
			`{"spec":{"metadata":{"managedFields":[{"fieldsV1":%s}]}}}`, `{"metadata":{"managedFields":[]},"x":[{"fieldsV1":%s}]}`,
			`[{"metadata":{"managedFields":[{"fieldsV1":%s}]}}]`, `{"metadata":{"managedFields":[{"fieldsV1":{}}]},"spec":%s}`,
			`{"metadata":{"managedFields":[{"fieldsV1":{}},{"x":%s}]}}`, `{"metadata":{"managedFields":[{"fieldsV1":"x","x":%s}]}}`,
		} {
			text := fmt.Sprintf(body, list("{}"))
			refused(t, jsonType, []byte(text))
			content := map[string]any{}
			if json.Unmarshal([]byte(text), &content) != nil {
				continue // a list
			}
			encoded, err := runtime.Encode(cbor.NewSerializer(scheme.Scheme, scheme.Scheme), &unstructured.Unstructured{Object: content})
			harness.Must(t, err)
			refused(t, cborType, encoded)
		}
	})
	t.Run("a Pod where another kind is expected", func(t *testing.T) {
		request := bytes.Replace(bodies[protobufType], []byte("\x12\x03Pod"), []byte("\x12\x03Nod"), 1)
		if _, err := read(t, protobufType, request); err != nil {
			t.Errorf("a kind that does not exist: %v", err)
		}
	})
}

func refused(t *testing.T, mediaType string, body []byte) {
	t.Helper()
	if _, err := read(t, mediaType, body); !apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("%d bytes: %v", len(body), err)
	}
}

// TestStoredObjects encodes objects as storages do.
func TestStoredObjects(t *testing.T) {
	var codec runtime.Codec
	decorator := bodies.Stored(func(c *storagebackend.ConfigForResource, _ string, _ func(runtime.Object) (string, error), _, _ func() runtime.Object,
		_ storage.AttrFunc, _ storage.IndexerFuncs, _ *cache.Indexers,
	) (storage.Interface, factory.DestroyFunc, error) {
		codec = c.Codec
		return nil, nil, nil
	})
	config := &storagebackend.ConfigForResource{Config: storagebackend.Config{Codec: scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion)}}
	if _, _, err := decorator(config, "", nil, nil, nil, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	for size, fits := range map[int]bool{3 << 20: true, 9 << 20: false} {
		_, err := runtime.Encode(codec, &corev1.ConfigMap{Data: map[string]string{"k": strings.Repeat("x", size)}})
		if (err == nil) != fits || err != nil && !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("a text of %d bytes: %v", size, err)
		}
	}
	for containers, fits := range map[int]bool{30000: true, 200000: false} {
		_, err := runtime.Encode(codec, &corev1.Pod{Spec: corev1.PodSpec{Containers: make([]corev1.Container, containers)}})
		if (err == nil) != fits || err != nil && !apierrors.IsRequestEntityTooLargeError(err) {
			t.Errorf("%d containers: %v", containers, err)
		}
	}
}
