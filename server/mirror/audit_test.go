package mirror

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// TestTail reads a file that grows, is renamed, and is emptied.
func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		harness.Must(t, err)
		_, err = f.WriteString(text)
		harness.Must(t, err)
		harness.Must(t, f.Close())
	}
	var got []string
	tail := tail{skip: true}
	defer tail.close()
	read := func(want ...string) {
		t.Helper()
		got = nil
		for range 2 { // the second time, in a new file
			harness.Must(t, tail.read(path, func(line []byte) { got = append(got, string(line)) }))
		}
		if !slices.Equal(got, want) {
			t.Errorf("it reads %q, not %q", got, want)
		}
	}
	write("before\n")
	read()
	write("one\ntw")
	read("one\n")
	write("o\nthree\n")
	read("two\n", "three\n")
	write("four\n")
	harness.Must(t, os.Rename(path, path+".1"))
	write("five\n")
	read("four\n", "five\n")
	harness.Must(t, os.Truncate(path, 0))
	write("6\n")
	read("6\n")
}
