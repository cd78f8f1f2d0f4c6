package resources

import (
	"bytes"
	_ "embed" // for the definitions
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/sqube/sqube/server/resources/internal/definitions"
)

// embedded has the definitions of the built-in kinds. Upstream compiles them from Go (k8s.io/kubernetes/pkg/generated/openapi),
// which makes a binary 6 MB larger and costs each start 40 ms.
//
//go:generate go run -tags grpcnotrace ./internal/gen -out definitions.gz -previous previous -steps ../../migrations/sqlite
//go:embed definitions.gz
var embedded []byte

// TypeConverter returns the types of the built-in kinds for server-side apply, whether they are served or not: which lists are maps
// or sets, and by which keys (KEP-555). It includes the kinds of apiextensions.k8s.io and apiregistration.k8s.io. It returns an
// error only if the binary was built with a broken definitions.gz. All servers of the process share it.
var TypeConverter = sync.OnceValues(newTypeConverter)

func newTypeConverter() (managedfields.TypeConverter, error) {
	d, err := definitions.Read(bytes.NewReader(embedded))
	if err != nil {
		return nil, err
	}
	parser := &typed.Parser{Schema: smd.Schema{Types: d.Types}}
	c := typeConverter{managedfields.NewDeducedTypeConverter(), map[schema.GroupVersionKind]typed.ParseableType{}}
	for _, k := range d.Kinds {
		c.types[schema.GroupVersionKind{Group: k.Group, Version: k.Version, Kind: k.Kind}] = parser.Type(k.Type)
	}
	return c, nil
}

// typeConverter replaces upstream's, which needs OpenAPI schemas.
type typeConverter struct {
	managedfields.TypeConverter // converts merged values back to objects, which needs no types
	types                       map[schema.GroupVersionKind]typed.ParseableType
}

// ObjectToTyped implements managedfields.TypeConverter. For an unknown kind it returns the error that means that managed fields belong
// to a version that no longer exists (runtime.IsNotRegisteredError).
func (c typeConverter) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	kind := obj.GetObjectKind().GroupVersionKind()
	t, ok := c.types[kind]
	if !ok {
		return nil, runtime.NewNotRegisteredErrForKind("the definitions of built-in kinds", kind)
	}
	if o, ok := obj.(*unstructured.Unstructured); ok {
		return t.FromUnstructured(o.UnstructuredContent(), opts...)
	}
	if unkeyed[kind.GroupKind()] || !slices.Contains(opts, typed.AllowDuplicates) {
		return t.FromStructured(obj, opts...)
	}
	obj = withoutManagedFields(obj)
	v, err := value.NewValueReflect(obj)
	if err != nil {
		return nil, err
	}
	//lint:ignore SA1019 upstream says that validation costs nothing, but it takes half as long as all other work on the value
	return typed.AsTypedUnvalidated(valueOf{v, obj}, t.Schema, t.TypeRef), nil
}

// withoutManagedFields returns a copy of an object of a generated type without its managed fields. They have no owner, so upstream
// finally ignores them, but only after decoding their JSON to merge and compare it.
func withoutManagedFields(obj runtime.Object) runtime.Object {
	m, err := meta.Accessor(obj)
	if err != nil || len(m.GetManagedFields()) == 0 {
		return obj
	}
	without := reflect.New(reflect.TypeOf(obj).Elem())
	without.Elem().Set(reflect.ValueOf(obj).Elem())
	m, err = meta.Accessor(without.Interface())
	if err != nil {
		return obj
	}
	m.SetManagedFields(nil)
	return without.Interface().(runtime.Object)
}

// valueOf is a value with its object.
type valueOf struct {
	value.Value
	object runtime.Object
}

// TypedToObject implements managedfields.TypeConverter. The field manager converts the object to each manager's version, which is
// usually the object's own; then it only reads the kind. The result must not be changed.
func (c typeConverter) TypedToObject(t *typed.TypedValue) (runtime.Object, error) {
	if v, ok := t.AsValue().(valueOf); ok {
		return v.object, nil
	}
	return c.TypeConverter.TypedToObject(t)
}

// unkeyed are the kinds with lists whose items may lack their key. All other objects of generated types match their definitions
// whatever their content, so they need no validation.
var unkeyed = map[schema.GroupKind]bool{
	{Kind: "ServiceAccount"}:                                                    true,
	{Group: "flowcontrol.apiserver.k8s.io", Kind: "FlowSchema"}:                 true,
	{Group: "flowcontrol.apiserver.k8s.io", Kind: "PriorityLevelConfiguration"}: true,
	{Group: "internal.apiserver.k8s.io", Kind: "StorageVersion"}:                true,
}
