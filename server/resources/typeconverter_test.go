package resources

import (
	"encoding/json"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/autoscaling"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/sqube/sqube/test/harness"
)

// TestObjectsFitTheirTypes validates what ObjectToTyped does not: objects of each kind, with lists of empty items, and with random
// content.
func TestObjectsFitTheirTypes(t *testing.T) {
	made, err := newTypeConverter()
	harness.Must(t, err)
	converter := made.(typeConverter)
	random := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs), rand.NewSource(1), scheme.Codecs)
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme} {
		harness.Must(t, add(known))
	}
	kinds := 0
	for kind, definition := range converter.types {
		obj, err := known.New(kind)
		if err != nil {
			t.Errorf("%s can't be tested: %v", kind, err)
			continue
		}
		if _, ok := obj.(metav1.ObjectMetaAccessor); !ok {
			continue // lists and the like have no managed fields
		}
		kinds++
		validate := func(fill func(runtime.Object)) error {
			obj, err := known.New(kind)
			harness.Must(t, err)
			fill(obj)
			obj.GetObjectKind().SetGroupVersionKind(kind)
			_, err = definition.FromStructured(obj, typed.AllowDuplicates)
			return err
		}
		if err := validate(func(obj runtime.Object) { extend(reflect.ValueOf(obj)) }); (err != nil) != unkeyed[kind.GroupKind()] {
			t.Errorf("%s: with empty items: %v", kind, err)
		}
		if kind.Kind == "CustomResourceDefinition" {
			continue // its schemas contain schemas, so random content never ends
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

// extend adds one item to every list in v, which is empty except for its own lists. Recursive types are extended once.
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

// validating is a typeConverter without shortcuts.
type validating struct{ typeConverter }

func (v validating) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	kind := obj.GetObjectKind().GroupVersionKind()
	if o, ok := obj.(*unstructured.Unstructured); ok {
		return v.types[kind].FromUnstructured(o.UnstructuredContent(), opts...)
	}
	return v.types[kind].FromStructured(obj, opts...)
}

// TestManagersOfTwoVersions checks that managers that write an object in two versions own the same fields as with full validation.
func TestManagersOfTwoVersions(t *testing.T) {
	converter, err := newTypeConverter()
	harness.Must(t, err)
	got, want := managedInTwoVersions(t, converter), managedInTwoVersions(t, validating{converter.(typeConverter)})
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, part := range []string{`"manager":"one"`, `"manager":"two"`, `"manager":"three"`, `autoscaling/v1`, `autoscaling/v2`, `f:metrics`, `f:maxReplicas`} {
		if !strings.Contains(got, part) {
			t.Errorf("%s is not in %s", part, got)
		}
	}
}

func managedInTwoVersions(t *testing.T, converter managedfields.TypeConverter) string {
	t.Helper()
	scheme := legacyscheme.Scheme
	write := func(version string, live runtime.Object, manager, spec string) runtime.Object {
		t.Helper()
		kind := schema.GroupVersionKind{Group: "autoscaling", Version: version, Kind: "HorizontalPodAutoscaler"}
		fields, err := managedfields.NewDefaultFieldManager(converter, runtime.UnsafeObjectConvertor(scheme), scheme, scheme, kind,
			schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal}, "", nil)
		harness.Must(t, err)
		text := `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/` + version + `","metadata":{"name":"a","namespace":"b"},"spec":` + spec + `}`
		if manager == "three" {
			patch := &unstructured.Unstructured{}
			harness.Must(t, json.Unmarshal([]byte(text), patch))
			live, err = fields.Apply(live, patch, manager, true)
		} else {
			var next runtime.Object
			if next, err = runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), []byte(text)); err == nil {
				next.(metav1.ObjectMetaAccessor).GetObjectMeta().SetManagedFields(live.(metav1.ObjectMetaAccessor).GetObjectMeta().GetManagedFields())
				live, err = fields.Update(live, next, manager)
			}
		}
		harness.Must(t, err)
		return live
	}
	const head = `{"scaleTargetRef":{"kind":"Deployment","name":"c"},"maxReplicas":`
	live := write("v1", &autoscaling.HorizontalPodAutoscaler{}, "one", head+`3,"targetCPUUtilizationPercentage":70}`)
	live = write("v2", live, "two", head+`4,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":70}}}]}`)
	live = write("v1", live, "three", head+`5}`)
	live = write("v1", live, "three", head+`5}`) // again, which changes nothing
	live = write("v2", live, "two", head+`5,"minReplicas":2,"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":80}}}]}`)
	managed := live.(metav1.ObjectMetaAccessor).GetObjectMeta().GetManagedFields()
	for i := range managed {
		managed[i].Time = nil
	}
	text, err := json.Marshal(live)
	harness.Must(t, err)
	return string(text)
}
