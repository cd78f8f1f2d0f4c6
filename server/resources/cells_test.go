package resources

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	apitesting "k8s.io/kubernetes/pkg/api/testing"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"

	"github.com/sqube/sqube/sqlstore/apistorage/transcode"
	"github.com/sqube/sqube/test/harness"
)

// message is the interface of generated types.
type message interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// TestCells checks that objects with random content give the same rows if all fields are removed except those that determine
// cells.
func TestCells(t *testing.T) {
	generator := printers.NewTableGenerator().With(printersinternal.AddHandlers)
	fill := fuzzer.FuzzerFor(apitesting.FuzzerFuncs, rand.NewSource(1), legacyscheme.Codecs)
	for kind, only := range cells {
		gvk := schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind)
		t.Run(gvk.String(), func(t *testing.T) {
			whole := newMessage(t, gvk)
			typ, err := transcode.For(whole)
			harness.Must(t, err)
			cut, err := typ.Filter(only)
			harness.Must(t, err)
			rows := map[string]bool{}
			for range 300 {
				whole := newMessage(t, gvk)
				fill.Fill(whole)
				data, err := whole.Marshal()
				harness.Must(t, err)
				less, err := cut.Append(nil, data)
				harness.Must(t, err)
				want, got := rowsOf(t, generator, gvk, data), rowsOf(t, generator, gvk, less)
				if got != want {
					t.Fatalf("cells are\n%s, want\n%s\nof\n%+v", got, want, whole)
				}
				rows[want] = true
			}
			if len(rows) < 250 {
				t.Errorf("only %d different rows", len(rows))
			}
		})
	}
}

func newMessage(t *testing.T, gvk schema.GroupVersionKind) message {
	t.Helper()
	obj, err := legacyscheme.Scheme.New(gvk)
	harness.Must(t, err)
	return obj.(message)
}

// rowsOf returns the rows of the Table of an object, as text, with the metadata that determine how it is sent.
func rowsOf(t *testing.T, generator printers.TableGenerator, gvk schema.GroupVersionKind, data []byte) string {
	t.Helper()
	stored := newMessage(t, gvk)
	harness.Must(t, stored.Unmarshal(data))
	legacyscheme.Scheme.Default(stored)
	internal, err := legacyscheme.Scheme.New(schema.GroupVersionKind{Group: gvk.Group, Version: runtime.APIVersionInternal, Kind: gvk.Kind})
	harness.Must(t, err)
	harness.Must(t, legacyscheme.Scheme.Convert(stored, internal, nil))
	table, err := generator.GenerateTable(internal, printers.GenerateOptions{Wide: true})
	harness.Must(t, err)
	for i := range table.Rows {
		m, err := meta.Accessor(table.Rows[i].Object.Object)
		harness.Must(t, err)
		table.Rows[i].Object = runtime.RawExtension{}
		table.Rows[i].Cells = append(table.Rows[i].Cells, m.GetNamespace(), m.GetName(), fmt.Sprint(m.GetAnnotations()))
	}
	text, err := json.Marshal(table.Rows)
	harness.Must(t, err)
	return string(text)
}
