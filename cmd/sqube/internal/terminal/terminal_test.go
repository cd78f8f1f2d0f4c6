package terminal

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"
)

// hostile are texts that a terminal would interpret instead of showing.
var hostile = []string{"\x1b[2J", "a\x1b]0;title\x07", "a\u009b31m", "a\x7f", "a\tb\r\nc", "a\u0085b", "a\u202eb", "a\u2028b", "\ufeffa", "a\u200db", "a\U000e0041", "a\x00"}

func FuzzPrintable(f *testing.F) {
	for _, text := range hostile {
		f.Add(text)
	}
	f.Add("plain text, Grüße, 日本語, 🙂, \u00a0")
	f.Add("\xff\xc3")
	f.Fuzz(func(t *testing.T, text string) {
		shown := Printable(text)
		if strings.IndexFunc(shown, func(r rune) bool { return !unicode.IsGraphic(r) }) >= 0 || strings.ContainsRune(shown, unicode.ReplacementChar) && !strings.ContainsRune(text, unicode.ReplacementChar) {
			t.Errorf("%q is shown as %q", text, shown)
		}
		if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) || r == unicode.ReplacementChar }) < 0 && shown != text {
			t.Errorf("%q is changed to %q", text, shown)
		}

		var want, got map[string]any
		key := text
		if len(key) > 500 { // YAML limits the length of keys
			key = "long"
		}
		stored, err := json.Marshal(map[string]any{"key": text, "list": []any{text}, key: 1.5})
		if err != nil || json.Unmarshal(stored, &want) != nil {
			return // no JSON object has it
		}
		printed, err := YAML(want)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if strings.IndexFunc(string(printed), func(r rune) bool { return r != '\n' && r <= 0xffff && !unicode.IsGraphic(r) }) >= 0 {
			t.Errorf("%q is printed as %q", text, printed)
		}
		if err := yaml.Unmarshal(printed, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is printed as %q, which is read as %v, %v", text, printed, got, err)
		}
	})
}
