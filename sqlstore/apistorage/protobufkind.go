package apistorage

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/sqlstore/apistorage/transcode"
)

// protobuf is the storage version of a kind whose Go type is generated for
// protobuf. The JSON of its rows becomes protobuf without a decoder, and an
// object by way of that, which takes a third of the time.
type protobufKind struct {
	scheme   *runtime.Scheme
	kind     metav1.TypeMeta
	head     []byte // how the JSON of its objects begins
	message  *transcode.Type
	cells    *transcode.Filter // see Kinds.Cells
	internal reflect.Type
	empty    func() unmarshaler
}

// unmarshaler is what generated types have.
type unmarshaler interface {
	runtime.Object
	metav1.ObjectMetaAccessor
	Unmarshal([]byte) error
}

// Kinds are built-in kinds.
type Kinds struct {
	// Scheme knows their versions.
	Scheme *runtime.Scheme
	// Cells are the fields of a stored object that make the cells of a Table: of
	// the messages that have others, by their path such as "spec.containers".
	// Kinds that are not there are decoded whole, but for their managed fields.
	Cells map[metav1.TypeMeta]map[string][]string
}

// protobufKindOf returns what is known of the kind of internal, an object as
// storages return it, stored in a version; nil for kinds that are not built in,
// nor generated.
func (k *Kinds) protobufKindOf(internal runtime.Object, version runtime.GroupVersioner) (*protobufKind, error) {
	if k == nil || version == nil {
		return nil, nil
	}
	kinds, _, err := k.Scheme.ObjectKinds(internal)
	if err != nil {
		return nil, nil
	}
	stored, ok := version.KindForGroupVersionKinds(kinds)
	if !ok {
		return nil, nil
	}
	obj, err := k.Scheme.New(stored)
	if err != nil {
		return nil, nil
	}
	_, nested := obj.(runtime.NestedObjectDecoder)
	if _, ok := obj.(unmarshaler); !ok || nested {
		return nil, nil
	}
	message, err := transcode.For(obj)
	if err != nil {
		return nil, nil
	}
	kind := metav1.TypeMeta{Kind: stored.Kind, APIVersion: stored.GroupVersion().String()}
	cells, err := message.Filter(k.Cells[kind])
	if err != nil {
		return nil, fmt.Errorf("the fields that make the cells of %s: %w", stored, err)
	}
	t := reflect.TypeOf(obj).Elem()
	return &protobufKind{
		scheme: k.Scheme, kind: kind, head: head(kind), message: message, cells: cells, internal: reflect.TypeOf(internal),
		empty: func() unmarshaler { return reflect.New(t).Interface().(unmarshaler) },
	}, nil
}

// is says whether data is JSON of an object in the storage version.
func (g *protobufKind) is(data []byte) bool {
	return g != nil && len(data) > len(g.head) && string(data[:len(g.head)]) == string(g.head)
}

// buffers are buffers for what is needed for a moment.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// largeMessage is the size from which on a buffer is not used again.
const largeMessage = 256 << 10

// release gives a buffer back to buffers, as it has grown meanwhile.
func putBuffer(buffer *[]byte, grown []byte) {
	if cap(grown) <= largeMessage {
		*buffer = grown
	}
	buffers.Put(buffer)
}

// decode decodes data into an internal object as the codec would, or is not
// done where only that can. The form is that of the row in protobuf, nil where
// there is none. With cells the object has no more than what makes the cells of
// a Table, which takes less time. asStored says that the conversion made no
// fields of annotations.
func (g *protobufKind) decode(data, form []byte, into runtime.Object, revision int64, cells bool) (done, asStored bool, err error) {
	if !g.is(data) || reflect.TypeOf(into) != g.internal {
		return false, false, nil
	}
	obj := g.empty()
	if g.unmarshal(data, form, obj, revision, cells) != nil {
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

func (g *protobufKind) unmarshal(data, form []byte, into unmarshaler, revision int64, cells bool) error {
	if form == nil {
		buffer := buffers.Get().(*[]byte)
		message, exact, err := g.message.Append((*buffer)[:0], data, strconv.FormatInt(revision, 10))
		defer putBuffer(buffer, message)
		if err != nil {
			return err
		}
		if !exact {
			return errInexact
		}
		form = message
	}
	if !cells {
		return into.Unmarshal(form)
	}
	buffer := buffers.Get().(*[]byte)
	less, err := g.cells.Append((*buffer)[:0], form)
	defer putBuffer(buffer, less)
	if err != nil {
		return err
	}
	return into.Unmarshal(less)
}
