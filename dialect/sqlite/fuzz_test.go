package sqlite

import (
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sqube/sqube/test/harness"
)

// FuzzDSN checks that dsn names exactly the file at a path, whatever its characters, and sets the pragmas.
func FuzzDSN(f *testing.F) {
	for _, name := range []string{"sqube.db", "a b", "a?mode=memory", "a#b", "a%20b", "a&_pragma=query_only(1)", "é", ":memory:", "file:x", "a'b\"c", "a\\b", "+", ";"} {
		f.Add(name)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || name == "." || name == ".." || len(name) > 100 || strings.ContainsAny(name, "/\x00") || !utf8.ValidString(name) {
			return // not a file name
		}
		folder, err := os.MkdirTemp(dir, "")
		harness.Must(t, err)
		defer os.RemoveAll(folder)
		db, err := sql.Open("sqlite", dsn(filepath.Join(folder, name), "cache_size(-4321)"))
		harness.Must(t, err)
		defer db.Close()
		var cacheSize int
		if _, err := db.ExecContext(t.Context(), "PRAGMA user_version = 1"); err != nil {
			t.Fatalf("%q: %v", name, err)
		}
		if err := db.QueryRowContext(t.Context(), "PRAGMA cache_size").Scan(&cacheSize); err != nil || cacheSize != -4321 {
			t.Errorf("%q: the pragma is %d, %v", name, cacheSize, err)
		}
		files, err := os.ReadDir(folder)
		if err != nil || !slices.ContainsFunc(files, func(e os.DirEntry) bool { return e.Name() == name }) || len(files) != 1 {
			t.Errorf("%q is at %v, %v", name, files, err)
		}
	})
}
