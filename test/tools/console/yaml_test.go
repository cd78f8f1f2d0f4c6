package console

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// TestYAML reads what the console copies as YAML.
func TestYAML(t *testing.T) {
	strings := []any{"", " ", "a", "yes", "No", "true", "null", "~", "1", "1.5", "0x1f", "1e3", "0o7", ".5", "-", "- a", "? a", "a: b", "a:", "a #b", "#a", "|", "&a", "*a", "!t", "%d",
		"@x", "`x", `"q"`, "'q'", "{a}", "a,b", "l1\nl2", "l1\nl2\n", "l\n\n", "\n", "\na", " a\nb", "a\n b\nc", "a \nb", "tab\tx", "a\n\tb", "é漢🙂", "\u2028", "a\u0085b\nc", "2026-11-25",
		"2026-11-25T12:00:00Z", "12:30:45", "=", "<<", "---\na", "a\n---\nb", "a\n#b", ".inf", "x: ", "http://a.b/c?d=e&f", "off", "y", "007", "\r\n", "a\r\nb", "\ufeffa", "x\n   \ny", "/ #x"}
	keys := map[string]any{}
	for _, s := range strings {
		keys[s.(string)] = map[string]any{"value": s, "list": []any{s, map[string]any{s.(string): s, "z": []any{}}, []any{s}}}
	}
	want := map[string]any{"strings": strings, "keys": keys, "numbers": []any{0.0, -2.5, 1e21, true, false, nil}, "none": map[string]any{}}
	object, err := json.Marshal(want)
	must(t, err)
	text := eval[string](newPage(t), "import('./yaml.js').then((m) => m.text(JSON.parse("+quote(string(object))+")))")
	var got map[string]any
	if err := yaml.Unmarshal([]byte(text), &got); err != nil {
		t.Fatalf("%v\n%q", err, text)
	}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Errorf("(-want +got)\n%s\n%s", difference, text)
	}
}
