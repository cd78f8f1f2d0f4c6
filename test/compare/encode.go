package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// wire encodes and decodes built-in kinds in protobuf.
var wire = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// encode returns a body in the encoding that a script asks for, with its media type; nil where there is none.
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
		// Through JSON's numbers, so that 1 is an integer.
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
