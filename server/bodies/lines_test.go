package bodies_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/test/harness"
)

// TestLineBreaks checks which bodies get line breaks, and that the decoder of YAML makes the same of them as without.
func TestLineBreaks(t *testing.T) {
	long := strings.Repeat("x", 100)
	for text, breaks := range map[string]bool{
		`{"a":"` + long + `","b":1}`:                        true,
		`{"a":"` + long + `","b":1}` + "\n":                 true,
		`{"a":"` + long + `\"{\\","b":[{"c":null},-1.5e3]}`: true,
		`{"a":"` + long + `","b":"k: v, # {["}`:             true,
		`{"a":"` + long + `","a":1}`:                        false,
		`{"a":{"` + long + `":1,"` + long + `":2}}`:         false,
		`{"a":"` + long + `","b":"\u00e9"}`:                 false,
		`{"a":"` + long + `","b":"\ud83d\ude00"}`:           false,
		`{"a":"` + long + `","b":"é"}`:                      false,
		`{"a":"` + long + "\x7f" + `","b":1}`:               false,
		`{"` + strings.Repeat(long, 11) + `":1,"b":1}`:      false,
		`{"a":"` + long + `",` + "\n" + `"b":1}`:            false,
		`{"a":"` + long + `",` + "\t" + `"b":1}`:            false,
		`{"a":"` + long + `", b: 1}`:                        false,
		`{"a":"` + long + `","b":`:                          false,
		`["` + long + `",1]`:                                false,
		`{"a":1,"b":2}`:                                     false,
	} {
		if got := checkLines(t, text); got != breaks {
			t.Errorf("%s: line breaks: %t", text, got)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		text, err := json.Marshal(map[string]any{"a": randomValue(random, 5), "b": randomValue(random, 5), "": randomValue(random, 3)})
		harness.Must(t, err)
		checkLines(t, string(text))
	}
}

// checkLines reports whether the handler reads the text with line breaks.
func checkLines(t *testing.T, text string) bool {
	t.Helper()
	got, err := read(t, string(types.ApplyYAMLPatchType), []byte(text))
	harness.Must(t, err)
	var decoded [4]map[string]any
	var errs [4]error
	for i, data := range []string{text, string(got)} {
		errs[i] = yaml.Unmarshal([]byte(data), &decoded[i])
		errs[i+2] = yaml.UnmarshalStrict([]byte(data), &decoded[i+2])
	}
	for i := range 2 {
		if !reflect.DeepEqual(decoded[2*i], decoded[2*i+1]) || fmt.Sprint(errs[2*i]) != fmt.Sprint(errs[2*i+1]) {
			t.Errorf("%s is decoded to %v, %v, and with line breaks to %v, %v", text, decoded[2*i], errs[2*i], decoded[2*i+1], errs[2*i+1])
		}
	}
	return string(got) != text
}

// randomValue returns a value in JSON of at most that depth.
func randomValue(r *rand.Rand, depth int) any {
	texts := []string{"", "a", "<<", "~", "null", "true", "0x1f", "1_000", "2001-01-01", "- a", "a: b", "{", "}", "[", "#", `"`, `\`, "'", "\n", "\t", "/", "&a", "*a", "!!binary x", "%", "@", "`", "---", "é"}
	switch n := r.IntN(10); {
	case n < 3 && depth > 0:
		object := map[string]any{}
		for range r.IntN(6) {
			object[texts[r.IntN(len(texts))]+texts[r.IntN(len(texts))]] = randomValue(r, depth-1)
		}
		return object
	case n < 5 && depth > 0:
		list := make([]any, r.IntN(6))
		for i := range list {
			list[i] = randomValue(r, depth-1)
		}
		return list
	case n < 8:
		return strings.Repeat(texts[r.IntN(len(texts))], r.IntN(12))
	case n < 9:
		return r.NormFloat64() * 1e6
	default:
		return []any{nil, true, r.IntN(1000) - 500}[r.IntN(3)]
	}
}
