package previous

import (
	"encoding/json"
	"math/rand"
	"os"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/sqube/sqube/server/resources/internal/definitions"
	"github.com/sqube/sqube/test/harness"
)

// TestEveryFieldIsKnown fills objects of every kind with random content: a version knows all fields of its own kinds.
func TestEveryFieldIsKnown(t *testing.T) {
	file, err := os.Open("../definitions.gz")
	harness.Must(t, err)
	defer file.Close()
	own, err := definitions.Read(file)
	harness.Must(t, err)
	v := known(own, Release{}, "this version")
	random := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, func(serializer.CodecFactory) []any {
		return []any{func(r *runtime.RawExtension, _ randfill.Continue) { r.Raw = []byte(`{"any":"thing"}`) }}
	}), rand.NewSource(1), scheme.Codecs)
	kinds := 0
	for kind := range v.kinds {
		obj, err := scheme.Scheme.New(kind)
		if err != nil {
			continue // CustomResourceDefinition and APIService
		}
		if _, ok := obj.(metav1.ObjectMetaAccessor); !ok {
			continue
		}
		kinds++
		for range 20 {
			random.Fill(obj)
			obj.GetObjectKind().SetGroupVersionKind(kind)
			value, err := json.Marshal(obj)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if unknown, err := v.Unknown(value); err != nil || len(unknown) > 0 {
				t.Fatalf("%s: %q, %v", kind, unknown, err)
			}
		}
	}
	if kinds < 60 {
		t.Errorf("only %d kinds", kinds)
	}
}

func TestUnknown(t *testing.T) {
	d := &definitions.Definitions{}
	field := func(name, kind string) smd.StructField { return smd.StructField{Name: name, Type: named(kind)} }
	fields := func(fields ...smd.StructField) smd.Atom { return smd.Atom{Map: &smd.Map{Fields: fields}} }
	text := smd.TypeRef{Inlined: smd.Atom{Scalar: ptr.To(smd.String)}}
	schemaProps := strings.TrimSuffix(schemaOr, "Or")
	for name, atom := range map[string]smd.Atom{
		"boat": fields(field("apiVersion", "text"), field("bare", "bare"), field("free", "free"), field("kind", "text"),
			field("masts", "masts"), field("schema", schemaProps)),
		"masts":     {List: &smd.List{ElementType: named("mast")}},
		"mast":      fields(smd.StructField{Name: "flags", Type: smd.TypeRef{Inlined: smd.Atom{Map: &smd.Map{ElementType: text}}}}),
		"free":      {Scalar: ptr.To(smd.Scalar("untyped")), Map: &smd.Map{ElementType: named(anything)}},
		"bare":      {Map: &smd.Map{ElementType: named(anything)}},
		schemaProps: fields(field("items", schemaOr+"Array"), smd.StructField{Name: "type", Type: text}),
	} {
		d.Types = append(d.Types, smd.TypeDef{Name: name, Atom: atom})
	}
	d.Kinds = []definitions.Kind{
		{Group: "sea", Version: "v1", Kind: "Boat", Type: "boat"}, {Group: "sea", Version: "v1beta1", Kind: "Boat"},
	}
	v := known(d, Release{}, "v0.1")
	for value, want := range map[string][]string{
		`{"apiVersion":"sea/v1","kind":"Boat","masts":[{"flags":{"a":"b"}}],"free":{"c":{"d":1}},"bare":{}}`: nil,
		`{"apiVersion":"sea/v1beta1","kind":"Boat","whatever":1}`:                                            nil,
		`{"apiVersion":"sea/v1","kind":"Boat","new":{},"newer":null,"newest":[]}`:                            nil,
		`{"apiVersion":"sea/v1","kind":"Buoy"}`:                                                              {"v0.1 does not have this resource"},
		`{"apiVersion":"sea/v2","kind":"Boat"}`:                                                              {"it is stored in version v2, and v0.1 knows v1, v1beta1"},
		`{"apiVersion":"sea/v1","kind":"Boat","new":false,"masts":[{"flags":{}},{"a-b":1},{"a-b":2}],"bare":{"x":1}}`: {
			"v0.1 does not have the field .bare.x", `v0.1 does not have the field .masts[*]["a-b"]`, "v0.1 does not have the field .new",
		},
		`{"apiVersion":"sea/v1","kind":"Boat","schema":{"items":{"items":[{"type":"a","x":1}]}}}`: {
			"v0.1 does not have the field .schema.items.items[*].x",
		},
	} {
		if got, err := v.Unknown([]byte(value)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", value, got, err)
		}
	}
	if _, err := v.Unknown([]byte("{")); err == nil {
		t.Error("half an object is accepted")
	}
	v.Schema = 6
	if got := v.UnknownSchema(6); got != "" {
		t.Error(got)
	}
	if got, want := v.UnknownSchema(7), "the schema is 7, and the last sqube with v0.1 knows those up to 6"; got != want {
		t.Error(got)
	}
}

// TestMove upgrades Kubernetes.
func TestMove(t *testing.T) {
	r := Releases{Current: Release{"v1.36.3", 6}, Previous: Release{"v1.35.9", 5}}
	for _, step := range []struct {
		to, current, previous Release
		refused               bool
	}{
		{to: Release{"v1.36.4", 7}, current: Release{"v1.36.4", 7}, previous: Release{"v1.35.9", 5}},
		{to: Release{"v1.37.0-rc.1", 8}, current: Release{"v1.37.0-rc.1", 8}, previous: Release{"v1.36.4", 7}},
		{to: Release{"v1.37.0", 8}, current: Release{"v1.37.0", 8}, previous: Release{"v1.36.4", 7}},
		{to: Release{"v1.39.0", 8}, current: Release{"v1.37.0", 8}, previous: Release{"v1.36.4", 7}, refused: true},
		{to: Release{"v1.36.4", 8}, current: Release{"v1.37.0", 8}, previous: Release{"v1.36.4", 7}, refused: true},
	} {
		if err := r.Move(step.to); (err != nil) != step.refused || r != (Releases{step.current, step.previous}) {
			t.Errorf("to %v: %v, %v", step.to, r, err)
		}
	}
}
