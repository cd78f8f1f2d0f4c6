package kit

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

	"github.com/sqube/sqube/test/harness"
)

// Objects in each media type, as sent and received by the sections on media types and on watches.

const (
	Protobuf = runtime.ContentTypeProtobuf
	CBOR     = runtime.ContentTypeCBOR
)

// BuiltInTypes are the media types of built-in resources, customTypes those of custom ones.
var (
	BuiltInTypes = []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, Protobuf, CBOR}
	CustomTypes  = []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML, CBOR}
)

// codecs are for the built-in kinds, and those that any object can be converted to.
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
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), Protobuf)
	if !ok {
		t.Fatal("there is no protobuf serializer")
	}
	return info.Serializer
}

// EncodeAs encodes an object in a media type.
func EncodeAs(t testing.TB, mediaType string, object map[string]any) []byte {
	t.Helper()
	var data []byte
	var err error
	switch mediaType {
	case runtime.ContentTypeJSON:
		data, err = json.Marshal(object)
	case runtime.ContentTypeYAML:
		data, err = yaml.Marshal(object)
	case CBOR:
		data, err = direct.Marshal(object)
	case Protobuf:
		u := unstructured.Unstructured{Object: object}
		var typed runtime.Object
		if typed, err = scheme.Scheme.New(u.GroupVersionKind()); err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed)
		}
		if err == nil {
			data, err = runtime.Encode(codecs.EncoderForVersion(protobufOf(t), u.GroupVersionKind().GroupVersion()), typed)
		}
	default:
		t.Fatalf("can't encode as %q", mediaType)
	}
	if err != nil {
		t.Fatalf("encoding as %s: %v", mediaType, err)
	}
	return data
}

// DecodeFrom decodes data of a media type into what its JSON would be decoded to.
func DecodeFrom(t testing.TB, mediaType string, data []byte) map[string]any {
	t.Helper()
	var object any
	var err error
	switch mediaType {
	case runtime.ContentTypeJSON:
		err = json.Unmarshal(data, &object)
	case runtime.ContentTypeYAML:
		err = yaml.Unmarshal(data, &object)
	case CBOR:
		err = direct.Unmarshal(data, &object)
	case Protobuf:
		// Discovery documents do not contain their version, for historical reasons.
		object, _, err = protobufOf(t).Decode(data, &schema.GroupVersionKind{Version: "v1"}, nil)
	default:
		t.Fatalf("can't decode from %q: %s", mediaType, data)
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

// DecodeAs fails the test unless the body has the media type, ignoring parameters, and returns it decoded.
func (a Answer) DecodeAs(t testing.TB, mediaType string) map[string]any {
	t.Helper()
	got, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil || got != mediaType {
		t.Fatalf("%s: the response is %q instead of %s:\n%q", a.Request, a.Header.Get("Content-Type"), mediaType, a.Body)
	}
	return DecodeFrom(t, mediaType, a.Body)
}

// GetAs sends a GET with an Accept header.
func (c *Client) GetAs(t testing.TB, accept, path string) Answer {
	t.Helper()
	return c.Send(t, http.MethodGet, path, Header{"Accept", accept}, nil)
}

// WatchAs repeats a watch until it lasts long enough for n events, which on a busy machine takes more than a second.
func (c *Client) WatchAs(t testing.TB, n int, headers Header, path string) Answer {
	t.Helper()
	for seconds := 1; ; seconds *= 2 {
		a := c.Send(t, http.MethodGet, fmt.Sprint(path, "&timeoutSeconds=", seconds), headers, nil).OK(t)
		if len(a.Events(t)) >= n || seconds > 30 {
			return a
		}
	}
}

// FieldOf returns a field of an object, or nil.
func FieldOf(t testing.TB, object map[string]any, fields ...string) any {
	t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(object, fields...)
	harness.Must(t, err)
	return value
}

// Events decodes the response of a watch that has ended.
func (a Answer) Events(t testing.TB) []Event {
	t.Helper()
	mediaType, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	harness.Must(t, err)
	if mediaType == runtime.ContentTypeCBORSequence {
		mediaType = CBOR
	}
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok || info.StreamSerializer == nil {
		t.Fatalf("%s: can't decode a watch in %q", a.Request, mediaType)
	}
	frames := info.StreamSerializer.Framer.NewFrameReader(io.NopCloser(bytes.NewReader(a.Body)))
	decoder := streaming.NewDecoder(frames, info.StreamSerializer.Serializer)
	var events []Event
	for {
		var next metav1.WatchEvent
		_, _, err := decoder.Decode(nil, &next)
		if errors.Is(err, io.EOF) {
			return events
		}
		if err != nil {
			t.Fatalf("%s: %v\n%q", a.Request, err, a.Body)
		}
		events = append(events, Event{Type: next.Type, Object: DecodeFrom(t, mediaType, next.Object.Raw)})
	}
}
