package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

// TestFilesLeaveTheirPlace takes files of an open database away. From then on nothing is committed, until they are back; and
// whatever was committed is in the files, wherever they are.
func TestFilesLeaveTheirPlace(t *testing.T) {
	move := func(t *testing.T, from, to string) {
		t.Helper()
		harness.Must(t, os.Rename(from, to))
	}
	replace := func(suffix string) func(*testing.T, string) func() {
		return func(t *testing.T, path string) func() {
			move(t, path+suffix, path+".away")
			harness.Must(t, os.WriteFile(path+suffix, []byte("another"), 0o600))
			return func() { move(t, path+".away", path+suffix) }
		}
	}
	take := func(suffix string) func(*testing.T, string) func() {
		return func(t *testing.T, path string) func() {
			move(t, path+suffix, path+".away")
			return func() { move(t, path+".away", path+suffix) }
		}
	}
	remove := func(suffix string) func(*testing.T, string) func() {
		return func(t *testing.T, path string) func() {
			harness.Must(t, os.Remove(path+suffix))
			return nil
		}
	}
	for name, test := range map[string]struct {
		do   func(t *testing.T, path string) (back func())
		want string
		kept bool // after a restart
	}{
		"file moved":    {take(""), "sqube.db (the database) is gone", true},
		"file deleted":  {remove(""), "sqube.db (the database) is gone", false},
		"file replaced": {replace(""), "sqube.db (the database) now leads to another file", true},
		"log moved":     {take("-wal"), "sqube.db-wal (the last commits) is gone", true},
		"log deleted":   {remove("-wal"), "sqube.db-wal (the last commits) is gone", true},
		"log replaced":  {replace("-wal"), "sqube.db-wal (the last commits) now leads to another file", true},
		"index deleted": {remove("-shm"), "sqube.db-shm (where others find the last commits) is gone", true},
		"folder renamed": {func(t *testing.T, path string) func() {
			folder := filepath.Dir(path)
			move(t, folder, folder+"-away")
			return func() { move(t, folder+"-away", folder) }
		}, "sqube.db (the database) is gone: it, or a folder above it, was deleted, moved or unmounted", true},
		"link changed": {func(t *testing.T, path string) func() {
			link := filepath.Join(filepath.Dir(filepath.Dir(path)), "link.db")
			harness.Must(t, errors.Join(os.Remove(link), os.Symlink("elsewhere.db", link)))
			return func() {
				harness.Must(t, errors.Join(os.Remove(link), os.Symlink(path, link)))
			}
		}, "link.db (the database) is gone", true},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "data", "sqube.db")
			link := filepath.Join(filepath.Dir(filepath.Dir(path)), "link.db")
			harness.Must(t, errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.Symlink(path, link)))
			e := opened(t, link)
			commit(t, e, []dialect.Write{create("before", []byte(`{}`))})
			harness.Must(t, e.InPlace(t.Context()))
			text(t, e, "SELECT count(*) FROM log")
			back := test.do(t, path)
			for _, key := range []string{"first", "second"} {
				_, err := e.Commit(t.Context(), []dialect.Write{create(key, []byte(`{}`))})
				if !errors.Is(err, dialect.ErrMoved) || !errors.Is(err, dialect.ErrUnavailable) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("a commit: %v", err)
				}
			}
			if err := e.InPlace(t.Context()); !errors.Is(err, dialect.ErrMoved) {
				t.Errorf("in place: %v", err)
			}
			sqlite.DropConnections(e) // as after a timeout
			if n := text(t, e, "SELECT count(*) FROM log WHERE key = 'before'"); n != "1" {
				t.Errorf("the acknowledged row is read %s times", n)
			}
			if n := text(t, e, "SELECT count(*) FROM log WHERE key = 'second'"); n != "0" {
				t.Errorf("what was refused before it was committed is read %s times", n)
			}
			sqlite.DropReaders(e)
			if err := e.Query(t.Context(), "SELECT 1", nil, func(dialect.Row) error { return nil }); !errors.Is(err, dialect.ErrMoved) {
				t.Errorf("a read on a new connection, which finds other files: %v", err)
			}
			if back != nil {
				back()
				commit(t, e, []dialect.Write{create("after", []byte(`{}`))})
			}
			closed(t, e)
			if !test.kept {
				return
			}
			again := open(t, path)
			if n := text(t, again, "SELECT count(*) FROM log WHERE key IN ('before', 'after')"); back != nil && n != "2" || back == nil && n != "1" {
				t.Errorf("after a restart there are %s rows", n)
			}
		})
	}
}

// TestAnotherDatabaseTookThePlace closes a database in whose place there is another one by now, with its own write-ahead log.
func TestAnotherDatabaseTookThePlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	e := opened(t, path)
	commit(t, e, []dialect.Write{create("former", []byte(`{}`))})
	aside := filepath.Join(t.TempDir(), "sqube.db")
	harness.Must(t, os.Rename(path, aside))
	// The log stays: no other process may use it.
	if _, err := sqlite.Open(t.Context(), path); err == nil {
		t.Error("another database is opened beside the log of one that is open")
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		harness.Must(t, os.Rename(path+suffix, aside+suffix))
	}
	newer := opened(t, path)
	commit(t, newer, []dialect.Write{create("newer", []byte(`{}`))})
	closed(t, e)
	if err := newer.InPlace(t.Context()); err != nil {
		t.Errorf("closing the former database took a file from the newer one: %v", err)
	}
	closed(t, newer)
	for file, want := range map[string]string{path: "newer", aside: "former"} {
		if key := text(t, open(t, file), "SELECT key FROM log"); key != want {
			t.Errorf("%s has %q", file, key)
		}
	}
}
