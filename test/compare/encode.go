package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// kinds are the built-in kinds, and those that any object can be converted to.
var kinds = runtime.NewScheme()

func init() {
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, metav1.AddMetaToScheme, metav1beta1.AddMetaToScheme} {
		utilruntime.Must(add(kinds))
	}
	metav1.AddToGroupVersion(kinds, schema.GroupVersion{Version: "v1"})
}

// wire encodes and decodes these kinds in protobuf; rawWire does so without the envelope, as in watch events.
var (
	wire    = protobuf.NewSerializer(kinds, kinds)
	rawWire = protobuf.NewRawSerializer(kinds, kinds)
)

// encode returns a body in the encoding that a script requests, with its media type; nil if there is no body.
func encode(body, encoding string) (io.Reader, string, error) {
	if body == "" {
		return nil, "", nil
	}
	switch encoding {
	case "protobuf":
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(body), nil, nil)
		if err != nil {
			return nil, "", fmt.Errorf("body for protobuf: %w", err)
		}
		var out bytes.Buffer
		err = wire.Encode(object, &out)
		return &out, runtime.ContentTypeProtobuf, err
	case "cbor":
		var value any
		if err := json.Unmarshal([]byte(body), &value); err != nil {
			return nil, "", fmt.Errorf("body for cbor: %w", err)
		}
		// With JSON's number types, so that 1 is an integer.
		if object, ok := value.(map[string]any); ok {
			var u unstructured.Unstructured
			if err := u.UnmarshalJSON([]byte(body)); err == nil {
				object = u.Object
			}
			value = object
		}
		out, err := direct.Marshal(value)
		return bytes.NewReader(out), runtime.ContentTypeCBOR, err
	}
	return bytes.NewReader([]byte(body)), runtime.ContentTypeJSON, nil
}
