package postgres

import (
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// TestScriptOfNewerPrograms passes on what pg_restore 18 writes: the parameter that older servers lack is set only if the server
// has it, and the rest is unchanged.
func TestScriptOfNewerPrograms(t *testing.T) {
	const begin, set, end = "SET lock_timeout = 0;", "\nSET transaction_timeout = 0;\n", "SET row_security = off;\n"
	rows := strings.Repeat("a row\n", scriptHead) + set
	for name, script := range map[string]string{"long": begin + set + end + rows, "short": begin + set + end, "from an older pg_restore": begin + "\n" + end + rows} {
		for _, size := range []int{1, 100, len(script)} {
			var got strings.Builder
			w := &scriptWriter{to: &got}
			for rest := script; rest != ""; {
				n, err := w.Write([]byte(rest[:min(size, len(rest))]))
				harness.Must(t, err)
				rest = rest[n:]
			}
			harness.Must(t, w.flush())
			want := script
			if head, tail, found := strings.Cut(script, begin+set); found {
				want = head + begin + string(setsIfKnown) + tail
			}
			if got.String() != want {
				t.Errorf("%s, in chunks of %d: %.200q", name, size, got.String())
			}
		}
	}
}
