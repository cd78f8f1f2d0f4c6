package apistorage

import (
	"encoding/json"
	"math"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// TestCells encodes cells as printers and custom resources make them.
func TestCells(t *testing.T) {
	for _, cell := range []any{
		"", "plain", "<none>", `"quoted" \ `, "a&b", "é \u2028 \x7f \x01 \xff", int64(math.MinInt64), int64(7), 7, int32(-1), 1.5, 1e30, true, nil,
		[]any{"<a>", int64(1)}, map[string]any{"b": "<", "a": nil}, metav1.ConditionTrue,
	} {
		want, err := json.Marshal(cell)
		harness.Must(t, err)
		if got, err := appendCell([]byte("["), cell); err != nil || string(got) != "["+string(want) {
			t.Errorf("%#v becomes %s, %v; want %s", cell, got, err, want)
		}
	}
}
