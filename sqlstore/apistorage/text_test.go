package apistorage

import (
	"encoding/json"
	"testing"
	"unicode/utf8"

	"github.com/sqube/sqube/test/harness"
)

func FuzzAltered(f *testing.F) {
	for _, seed := range []string{"", "plain", "\xff", "a\xff\xfeb", "\ufffd", `\ufffd`, `\\ufffd`, `\\\ufffd` + "\xc3", "\x00\u2028<&>", `\` + "\xff", `\\` + "\xff"} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		data, err := json.Marshal(map[string]string{key: value})
		harness.Must(t, err)
		if got, want := lossy(data), !utf8.ValidString(key) || !utf8.ValidString(value); got != want {
			t.Errorf("altered(%s) is %v", data, got)
		}
	})
}
