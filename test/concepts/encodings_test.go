package concepts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// Objects in each media type, as the sections on them and on watches send and receive them.

const (
	protobufType = runtime.ContentTypeProtobuf
	cborType     = runtime.ContentTypeCBOR
)

// builtInTypes are the media types of built-in resources, customTypes those of custom ones.
var (
	builtInTypes = []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, protobufType, cborType}
	customTypes  = []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, cborType}
)

// codecs know the built-in kinds, and those that any object can be turned into.
var codecs = func() serializer.CodecFactory {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme, metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme,
	} {
		if err := add(kinds); err != nil {
			panic(err)
		}
	}
	metav1.AddToGroupVersion(kinds, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(kinds, serializer.WithSerializer(cbor.NewSerializerInfo))
}()

// protobufOf returns the serializer of protobuf in its envelope.
func protobufOf(t testing.TB) runtime.Serializer {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), protobufType)
	if !ok {
		t.Fatal("there is no serializer of protobuf")
	}
	return info.Serializer
}

// encodeAs encodes an object in a media type.
func encodeAs(t testing.TB, mediaType string, object map[string]any) []byte {
	t.Helper()
	var data []byte
	var err error
	switch mediaType {
	case runtime.ContentTypeJSON:
		data, err = json.Marshal(object)
	case runtime.ContentTypeYAML:
		data, err = yaml.Marshal(object)
	case cborType:
		data, err = direct.Marshal(object)
	case protobufType:
		u := unstructured.Unstructured{Object: object}
		var typed runtime.Object
		if typed, err = scheme.Scheme.New(u.GroupVersionKind()); err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed)
		}
		if err == nil {
			data, err = runtime.Encode(codecs.EncoderForVersion(protobufOf(t), u.GroupVersionKind().GroupVersion()), typed)
		}
	default:
		t.Fatalf("nothing is encoded as %q", mediaType)
	}
	if err != nil {
		t.Fatalf("encode as %s: %v", mediaType, err)
	}
	return data
}

// decodeFrom decodes what has a media type into what JSON would be decoded to.
func decodeFrom(t testing.TB, mediaType string, data []byte) map[string]any {
	t.Helper()
	var object any
	var err error
	switch mediaType {
	case runtime.ContentTypeJSON:
		err = json.Unmarshal(data, &object)
	case runtime.ContentTypeYAML:
		err = yaml.Unmarshal(data, &object)
	case cborType:
		err = direct.Unmarshal(data, &object)
	case protobufType:
		// Discovery does not tell the version of its documents, as of old.
		object, _, err = protobufOf(t).Decode(data, &schema.GroupVersionKind{Version: "v1"}, nil)
	default:
		t.Fatalf("nothing is decoded from %q: %s", mediaType, data)
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(object)
	}
	var plain map[string]any
	if err == nil {
		err = json.Unmarshal(text, &plain)
	}
	if err != nil {
		t.Fatalf("decode %s: %v\n%q", mediaType, err, data)
	}
	return plain
}

// in fails the test unless the body has the media type, without looking at parameters, and returns it decoded.
func (a answer) in(t testing.TB, mediaType string) map[string]any {
	t.Helper()
	got, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil || got != mediaType {
		t.Fatalf("%s: the answer is %q instead of %s:\n%q", a.request, a.Header.Get("Content-Type"), mediaType, a.Body)
	}
	return decodeFrom(t, mediaType, a.Body)
}

// getAs is a GET with an Accept header.
func (c *client) getAs(t testing.TB, accept, path string) answer {
	t.Helper()
	return c.send(t, http.MethodGet, path, header{"Accept", accept}, nil)
}

// watchAs asks for a watch until it lasts long enough for n events, which on a busy machine takes more than a second.
func (c *client) watchAs(t testing.TB, n int, headers header, path string) answer {
	t.Helper()
	for seconds := 1; ; seconds *= 2 {
		a := c.send(t, http.MethodGet, fmt.Sprint(path, "&timeoutSeconds=", seconds), headers, nil).want(t, http.StatusOK)
		if len(a.events(t)) >= n || seconds > 30 {
			return a
		}
	}
}

// field is that of an object, or nil.
func field(t testing.TB, object map[string]any, fields ...string) any {
	t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(object, fields...)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// events takes the answer of a watch that is over apart.
func (a answer) events(t testing.TB) []event {
	t.Helper()
	mediaType, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	if mediaType == runtime.ContentTypeCBORSequence {
		mediaType = cborType
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok || info.StreamSerializer == nil {
		t.Fatalf("%s: no watch is sent as %q", a.request, mediaType)
	}
	frames := info.StreamSerializer.Framer.NewFrameReader(io.NopCloser(bytes.NewReader(a.Body)))
	decoder := streaming.NewDecoder(frames, info.StreamSerializer.Serializer)
	var events []event
	for {
		var next metav1.WatchEvent
		_, _, err := decoder.Decode(nil, &next)
		if errors.Is(err, io.EOF) {
			return events
		}
		if err != nil {
			t.Fatalf("%s: %v\n%q", a.request, err, a.Body)
		}
		events = append(events, event{Type: next.Type, Object: decodeFrom(t, mediaType, next.Object.Raw)})
	}
}
