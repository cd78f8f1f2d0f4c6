package apistorage

import (
	"bytes"
	"context"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Events describes how a watch is sent: the kind and API version of its objects, and their format.
type Events struct {
	metav1.TypeMeta
	Format Format
}

type eventsKey struct{}

// WithEvents returns a context for watches whose events are only encoded, as e describes. Such watches decode no objects.
func WithEvents(ctx context.Context, e Events) context.Context {
	return context.WithValue(ctx, eventsKey{}, &e)
}

type metadataKey struct{}

// WithMetadata returns a context for watches whose events have a PartialObjectMetadata for each object. Such watches decode only metadata.
func WithMetadata(ctx context.Context) context.Context {
	return context.WithValue(ctx, metadataKey{}, true)
}

// eventOverhead is how many bytes an event usually adds to its stored object.
const eventOverhead = 128

// appendEvent appends an event with the object: a line of JSON, or a WatchEvent message, which the caller frames.
func (o *Raw) appendEvent(b []byte, event watch.EventType, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	if o.Format == Protobuf {
		return o.appendProtobufEvent(b, event, encode)
	}
	before, after, ok := o.split(head(o.TypeMeta))
	if !ok {
		return o.appendEncoded(b, encode)
	}
	b = append(b, `{"type":"`...)
	b = append(b, event...)
	b = append(b, `","object":`...)
	b = append(b, before...)
	b = o.appendRevision(b)
	b = append(b, after...)
	return append(b, "}\n"...), nil
}

// appendProtobufEvent appends a WatchEvent: a type, and a RawExtension that holds the object in its envelope.
func (o *Raw) appendProtobufEvent(b []byte, event watch.EventType, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	buffer := buffers.Get().(*[]byte)
	message, grown, ok := o.storedMessage((*buffer)[:0])
	defer putBuffer(buffer, grown)
	if !ok {
		return o.appendEncoded(b, encode)
	}
	kind := typeMeta(o.TypeMeta)
	size := len(envelopeMagic) + fieldSize(1, len(kind)) + fieldSize(2, len(message)) + len(envelopeEnd)
	b = appendField(b, 1, []byte(event))
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(fieldSize(1, size)))
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(size))
	b = append(b, envelopeMagic...)
	b = appendField(b, 1, kind)
	b = appendField(b, 2, message)
	return append(b, envelopeEnd...), nil
}

// appendEncoded decodes the object and appends the event that encode makes of it.
func (o *Raw) appendEncoded(b []byte, encode func(runtime.Object, io.Writer) error) ([]byte, error) {
	event := bytes.NewBuffer(b)
	err := o.encode(encode, event)
	return event.Bytes(), err
}
