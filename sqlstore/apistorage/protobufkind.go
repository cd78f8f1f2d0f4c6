package apistorage

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sqube/sqube/sqlstore/apistorage/transcode"
)

// protobufKind is the storage version of a kind whose Go type has a generated protobuf encoding. The JSON of its rows is
// transcoded to protobuf without a decoder, and decoded via protobuf, which takes a third of the time.
type protobufKind struct {
	scheme   *runtime.Scheme
	kind     metav1.TypeMeta
	head     []byte // the beginning of the JSON of its objects
	forms    func() forms
	complete func(runtime.Object) // see Kinds.Complete; may be nil
	internal reflect.Type
	empty    func() unmarshaler
}

// forms are derived from a kind's type when its objects are first used.
type forms struct {
	raw     bool // objects may hold a RawExtension
	message *transcode.Type
	cells   *transcode.Filter // see Kinds.Cells
}

// unmarshaler is implemented by generated types.
type unmarshaler interface {
	runtime.Object
	metav1.ObjectMetaAccessor
	Unmarshal([]byte) error
}

// Kinds are the built-in kinds.
type Kinds struct {
	// Scheme has their versions.
	Scheme *runtime.Scheme
	// Cells are the fields of a stored object that the cells of a Table show, by the path of their message, such as
	// "spec.containers". Kinds that are not listed are decoded whole, without managed fields.
	Cells map[metav1.TypeMeta]map[string][]string
	// Complete adds to an internal object, before it is stored, what upstream adds when it decodes the stored object. Most kinds
	// have all defaults by then.
	Complete map[metav1.TypeMeta]func(runtime.Object)
}

// protobufKindOf returns the protobufKind of internal, an object as storages return it, when stored in version. It is nil for
// kinds that are not built in or have no generated encoding.
func (k *Kinds) protobufKindOf(internal runtime.Object, version runtime.GroupVersioner) *protobufKind {
	if k == nil || version == nil {
		return nil
	}
	kinds, _, err := k.Scheme.ObjectKinds(internal)
	if err != nil {
		return nil
	}
	stored, ok := version.KindForGroupVersionKinds(kinds)
	if !ok {
		return nil
	}
	obj, err := k.Scheme.New(stored)
	if err != nil {
		return nil
	}
	_, nested := obj.(runtime.NestedObjectDecoder)
	if _, ok := obj.(unmarshaler); !ok || nested {
		return nil
	}
	kind := metav1.TypeMeta{Kind: stored.Kind, APIVersion: stored.GroupVersion().String()}
	t := reflect.TypeOf(obj).Elem()
	return &protobufKind{
		scheme: k.Scheme, kind: kind, head: head(kind), complete: k.Complete[kind], internal: reflect.TypeOf(internal),
		forms: sync.OnceValue(func() forms { return k.formsOf(obj, kind) }),
		empty: func() unmarshaler { return reflect.New(t).Interface().(unmarshaler) },
	}
}

// formsOf panics if Kinds.Cells names a field that the kind does not have.
func (k *Kinds) formsOf(obj runtime.Object, kind metav1.TypeMeta) forms {
	message, err := transcode.For(obj)
	if err != nil {
		panic(err) // but the type is generated
	}
	cells, err := message.Filter(k.Cells[kind])
	if err != nil {
		panic(fmt.Errorf("the fields that the cells of %s show: %w", kind, err))
	}
	return forms{raw: holdsRaw(reflect.TypeOf(obj).Elem(), map[reflect.Type]bool{}), message: message, cells: cells}
}

// is reports whether data is the JSON of an object in the storage version.
func (k *protobufKind) is(data []byte) bool {
	return k != nil && len(data) > len(k.head) && string(data[:len(k.head)]) == string(k.head)
}

// buffers are for short-lived data.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

// largeMessage is the size above which a buffer is not reused.
const largeMessage = 256 << 10

// putBuffer returns a buffer to buffers, as grown meanwhile.
func putBuffer(buffer *[]byte, grown []byte) {
	if cap(grown) <= largeMessage {
		*buffer = grown
	}
	buffers.Put(buffer)
}

// decode decodes data into an internal object as the codec would, and reports done, or not if only the codec can do it. encoding
// is the row in protobuf, nil if none is kept. With cells, the object gets only the fields that the cells of a Table show, which
// is faster. asStored reports that the conversion turned no annotations into fields.
func (k *protobufKind) decode(data, encoding []byte, into runtime.Object, revision int64, cells bool) (done, asStored bool, err error) {
	if !k.is(data) || reflect.TypeOf(into) != k.internal {
		return false, false, nil
	}
	obj := k.empty()
	if k.unmarshal(data, encoding, obj, revision, cells) != nil {
		return false, false, nil
	}
	k.scheme.Default(obj)
	if err := k.scheme.Convert(obj, into, nil); err != nil {
		return true, false, fmt.Errorf("converting from %s: %w", k.kind.APIVersion, err)
	}
	annotations := len(obj.GetObjectMeta().GetAnnotations())
	accessor, ok := into.(metav1.ObjectMetaAccessor)
	return true, ok && len(accessor.GetObjectMeta().GetAnnotations()) == annotations, nil
}

// dropConverted drops the annotations that the conversion to an internal object turns into fields, or drops.
func (k *protobufKind) dropConverted(m *metav1.ObjectMeta) error {
	obj, into := k.empty(), reflect.New(k.internal.Elem()).Interface().(runtime.Object)
	obj.GetObjectMeta().SetAnnotations(m.Annotations)
	k.scheme.Default(obj)
	if err := k.scheme.Convert(obj, into, nil); err != nil {
		return fmt.Errorf("converting annotations from %s: %w", k.kind.APIVersion, err)
	}
	internal, err := meta.Accessor(into)
	if err == nil {
		m.Annotations = internal.GetAnnotations()
	}
	return err
}

// errInexact is the error for an object that can't be decoded via protobuf.
var errInexact = errors.New("the object is not the same in protobuf")

func (k *protobufKind) unmarshal(data, encoding []byte, into unmarshaler, revision int64, cells bool) error {
	if encoding == nil {
		buffer := buffers.Get().(*[]byte)
		message, exact, err := k.forms().message.Append((*buffer)[:0], data, strconv.FormatInt(revision, 10))
		defer putBuffer(buffer, message)
		if err != nil {
			return err
		}
		if !exact {
			return errInexact
		}
		encoding = message
	}
	if !cells {
		return into.Unmarshal(encoding)
	}
	buffer := buffers.Get().(*[]byte)
	less, err := k.forms().cells.Append((*buffer)[:0], encoding)
	defer putBuffer(buffer, less)
	if err != nil {
		return err
	}
	return into.Unmarshal(less)
}
