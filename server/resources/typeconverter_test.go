package resources

import (
	"math/rand"
	"reflect"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// TestObjectsFitTheirTypes validates what ObjectToTyped does not: objects of each kind, with lists of items that are empty
// and with random content.
func TestObjectsFitTheirTypes(t *testing.T) {
	made, err := NewTypeConverter()
	if err != nil {
		t.Fatal(err)
	}
	converter := made.(typeConverter)
	random := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs), rand.NewSource(1), scheme.Codecs)
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	kinds := 0
	for kind, definition := range converter.types {
		obj, err := known.New(kind)
		if err != nil {
			t.Errorf("%s is not tried: %v", kind, err)
			continue
		}
		if _, ok := obj.(metav1.ObjectMetaAccessor); !ok {
			continue // lists and the like have no managed fields
		}
		kinds++
		validate := func(fill func(runtime.Object)) error {
			obj, err := known.New(kind)
			if err != nil {
				t.Fatal(err)
			}
			fill(obj)
			obj.GetObjectKind().SetGroupVersionKind(kind)
			_, err = definition.FromStructured(obj, typed.AllowDuplicates)
			return err
		}
		if err := validate(func(obj runtime.Object) { extend(reflect.ValueOf(obj)) }); (err != nil) != unkeyed[kind.GroupKind()] {
			t.Errorf("%s: with items that are empty: %v", kind, err)
		}
		for range 20 {
			if err := validate(func(obj runtime.Object) { random.Fill(obj) }); err != nil && !unkeyed[kind.GroupKind()] {
				t.Errorf("%s: with random content: %v", kind, err)
			}
		}
	}
	if kinds < 60 {
		t.Errorf("only %d kinds", kinds)
	}
}

// extend gives all lists in v an item that is empty but for its own lists. Types that hold themselves are extended once.
func extend(v reflect.Value, within ...reflect.Type) {
	if len(within) > 0 && !v.CanSet() || slices.Contains(within, v.Type()) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		extend(v.Elem(), append(within, v.Type())...)
	case reflect.Struct:
		for i := range v.NumField() {
			extend(v.Field(i), append(within, v.Type())...)
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			extend(v.Index(0), append(within, v.Type())...)
		}
	}
}
