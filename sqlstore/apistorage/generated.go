package apistorage

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/sqlstore/apistorage/transcode"
)

// generated is the storage version of a kind whose Go type is generated for
// protobuf. The JSON of its rows becomes protobuf without a decoder, and an
// object by way of that, which takes a third of the time.
type generated struct {
	scheme   *runtime.Scheme
	kind     metav1.TypeMeta
	head     []byte // how the JSON of its objects begins
	message  *transcode.Type
	internal reflect.Type
	empty    func() unmarshaler
}

// unmarshaler is what generated types have.
type unmarshaler interface {
	runtime.Object
	metav1.ObjectMetaAccessor
	Unmarshal([]byte) error
}

// generatedFor returns what is known of the kind of internal, an object as
// storages return it, stored in a version; nil for kinds that are not of the
// scheme, nor generated.
func generatedFor(scheme *runtime.Scheme, internal runtime.Object, version runtime.GroupVersioner) *generated {
	if scheme == nil || version == nil {
		return nil
	}
	kinds, _, err := scheme.ObjectKinds(internal)
	if err != nil {
		return nil
	}
	stored, ok := version.KindForGroupVersionKinds(kinds)
	if !ok {
		return nil
	}
	obj, err := scheme.New(stored)
	if err != nil {
		return nil
	}
	_, nested := obj.(runtime.NestedObjectDecoder)
	if _, ok := obj.(unmarshaler); !ok || nested {
		return nil
	}
	message, err := transcode.For(obj)
	if err != nil {
		return nil
	}
	t := reflect.TypeOf(obj).Elem()
	kind := metav1.TypeMeta{Kind: stored.Kind, APIVersion: stored.GroupVersion().String()}
	return &generated{
		scheme: scheme, kind: kind, head: head(kind), message: message, internal: reflect.TypeOf(internal),
		empty: func() unmarshaler { return reflect.New(t).Interface().(unmarshaler) },
	}
}

// is says whether data is JSON of an object in the storage version.
func (g *generated) is(data []byte) bool {
	return g != nil && len(data) > len(g.head) && string(data[:len(g.head)]) == string(g.head)
}

// messages are buffers for what is needed for a moment.
var messages = sync.Pool{New: func() any { return new([]byte) }}

// largeMessage is the size from which on a buffer is not used again.
const largeMessage = 256 << 10

// giveBack gives a buffer back to messages, as it has grown meanwhile.
func giveBack(buffer *[]byte, grown []byte) {
	if cap(grown) <= largeMessage {
		*buffer = grown
	}
	messages.Put(buffer)
}

// decode decodes data into an internal object as the codec would, or is not
// done where only that can. The form is that of the row in protobuf, nil where
// there is none. Without managed fields it takes less time. asStored says that
// the conversion made no fields of annotations.
func (g *generated) decode(data, form []byte, into runtime.Object, revision int64, unmanaged bool) (done, asStored bool, err error) {
	if !g.is(data) || reflect.TypeOf(into) != g.internal {
		return false, false, nil
	}
	obj := g.empty()
	if form != nil && unmanaged {
		err = unmarshalUnmanaged(form, obj)
	} else if form != nil {
		err = obj.Unmarshal(form)
	} else {
		err = g.unmarshal(data, obj, revision, unmanaged)
	}
	if err != nil {
		return false, false, nil
	}
	g.scheme.Default(obj)
	if err := g.scheme.Convert(obj, into, nil); err != nil {
		return true, false, fmt.Errorf("converting from %s: %w", g.kind.APIVersion, err)
	}
	annotations := len(obj.GetObjectMeta().GetAnnotations())
	accessor, ok := into.(metav1.ObjectMetaAccessor)
	return true, ok && len(accessor.GetObjectMeta().GetAnnotations()) == annotations, nil
}

// errInexact says that an object can't be decoded by way of protobuf.
var errInexact = errors.New("protobuf does not tell the object from another")

func (g *generated) unmarshal(data []byte, into unmarshaler, revision int64, unmanaged bool) error {
	transcode := g.message.Append
	if unmanaged {
		transcode = g.message.AppendUnmanaged
	}
	buffer := messages.Get().(*[]byte)
	message, exact, err := transcode((*buffer)[:0], data, strconv.FormatInt(revision, 10))
	defer giveBack(buffer, message)
	if err == nil && !exact {
		err = errInexact
	}
	if err != nil {
		return err
	}
	return into.Unmarshal(message)
}

// The fields of messages that have the metadata, and of those that have the
// managed fields: the last ones.
const (
	metadataNumber      = 1
	managedFieldsNumber = 17
)

// unmarshalUnmanaged unmarshals an object without its managed fields.
func unmarshalUnmanaged(message []byte, into unmarshaler) error {
	number, kind, tag := protowire.ConsumeTag(message)
	if tag < 0 || number != metadataNumber || kind != protowire.BytesType {
		return into.Unmarshal(message)
	}
	metadata, n := protowire.ConsumeBytes(message[tag:])
	if n < 0 {
		return protowire.ParseError(n)
	}
	kept := 0
	for kept < len(metadata) {
		number, _, n := protowire.ConsumeField(metadata[kept:])
		if n < 0 {
			return protowire.ParseError(n)
		}
		if number == managedFieldsNumber {
			break
		}
		kept += n
	}
	buffer := messages.Get().(*[]byte)
	less := appendField((*buffer)[:0], metadataNumber, metadata[:kept])
	less = append(less, message[tag+n:]...)
	defer giveBack(buffer, less)
	return into.Unmarshal(less)
}
