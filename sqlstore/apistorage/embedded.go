package apistorage

import (
	"bytes"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// embedded stands in for the object of an event. The encoder of a watch encodes the object and then the event around it, each
// into a buffer that it keeps. To keep these buffers small, the encoder gets a placeholder, which join replaces with the object.
type embedded struct {
	object  runtime.Object
	data    bytes.Buffer
	standIn []byte // nil if there is none
}

// The placeholder is a value in JSON, and the content of a field in protobuf.
var (
	jsonStandIn     = []byte(`0`)
	jsonObject      = []byte(`"object":0}`)
	protobufStandIn = []byte{0}
)

// CacheEncode implements runtime.CacheableObject.
func (e *embedded) CacheEncode(_ runtime.Identifier, encode func(runtime.Object, io.Writer) error, w io.Writer) error {
	object := e.object
	e.object = nil
	if err := encode(object, &e.data); err != nil {
		return err
	}
	text := e.data.Bytes()
	switch {
	case bytes.HasPrefix(text, envelopeMagic):
		e.standIn = protobufStandIn
	case bytes.HasPrefix(text, []byte("{")):
		e.standIn = jsonStandIn
	default: // CBOR
		_, err := w.Write(text)
		return err
	}
	_, err := w.Write(e.standIn)
	return err
}

// join returns the event with the object in place of the placeholder.
func (e *embedded) join(event []byte) ([]byte, error) {
	object := e.data.Bytes()
	var before, after []byte
	switch {
	case e.standIn == nil:
		return event, nil
	case bytes.Equal(e.standIn, jsonStandIn):
		at := bytes.LastIndex(event, jsonObject)
		if at < 0 {
			return nil, fmt.Errorf("an event has an unexpected form: %.100q", event)
		}
		at += len(jsonObject) - len("0}")
		before, after = event[:at], event[at+len(jsonStandIn):]
		object = bytes.TrimSuffix(object, []byte("\n"))
	default:
		var err error
		// Field 2 of a WatchEvent is a RawExtension, whose field 1 is the object.
		if before, after, err = around(event, len(object), 2, 1); err != nil {
			return nil, err
		}
	}
	whole := make([]byte, 0, len(before)+len(object)+len(after))
	return append(append(append(whole, before...), object...), after...), nil
}

// around returns what comes before and after the content of a field of a protobuf message, with the lengths for a content of that
// size. path is the number of the field, after those of the messages it is nested in.
func around(message []byte, size int, path ...protowire.Number) (before, after []byte, err error) {
	for at := 0; at < len(message); {
		number, kind, tag := protowire.ConsumeTag(message[at:])
		if tag < 0 {
			return nil, nil, protowire.ParseError(tag)
		}
		value := protowire.ConsumeFieldValue(number, kind, message[at+tag:])
		if value < 0 {
			return nil, nil, protowire.ParseError(value)
		}
		end := at + tag + value
		if number != path[0] || kind != protowire.BytesType {
			at = end
			continue
		}
		var begin, rest []byte
		if len(path) > 1 {
			content, _ := protowire.ConsumeBytes(message[at+tag:])
			if begin, rest, err = around(content, size, path[1:]...); err != nil {
				return nil, nil, err
			}
		}
		before = protowire.AppendVarint(append([]byte(nil), message[:at+tag]...), uint64(len(begin)+size+len(rest)))
		return append(before, begin...), append(rest, message[end:]...), nil
	}
	return nil, nil, errEnvelope
}

// GetObject implements runtime.CacheableObject.
func (e *embedded) GetObject() runtime.Object { return e.object.DeepCopyObject() }

// GetObjectKind implements runtime.Object.
func (e *embedded) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object.
func (e *embedded) DeepCopyObject() runtime.Object { return e.object.DeepCopyObject() }

var _ runtime.CacheableObject = (*embedded)(nil)
