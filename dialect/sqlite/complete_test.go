package sqlite_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

// copyFiles copies the files of a database with these suffixes to a new folder, and returns the path of the copy.
func copyFiles(t *testing.T, path string, suffixes ...string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "sqube.db")
	for _, suffix := range suffixes {
		content, err := os.ReadFile(path + suffix)
		if err == nil {
			err = os.WriteFile(to+suffix, content, 0o600)
		}
		harness.Must(t, err)
	}
	return to
}

// backedUp returns the path of a backup of the database at path.
func backedUp(t *testing.T, path string) string {
	t.Helper()
	backup, err := os.Create(filepath.Join(t.TempDir(), "backup.db"))
	harness.Must(t, err)
	harness.Must(t, errors.Join(sqlite.Backup(t.Context(), path, backup), backup.Close()))
	return backup.Name()
}

// TestFileWithoutItsLog copies the file of an open database. Without its write-ahead log it is refused, whatever was committed.
func TestFileWithoutItsLog(t *testing.T) {
	const missing = "its last commits are missing: they were in "
	refused := func(t *testing.T, path string) {
		t.Helper()
		if e, err := sqlite.Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), missing+path+"-wal") {
			t.Errorf("open: %v", err)
			if err == nil {
				_ = e.Close()
			}
		}
		if err := sqlite.Verify(t.Context(), path); err == nil || !strings.Contains(err.Error(), missing) {
			t.Errorf("verify: %v", err)
		}
	}
	rows := func(t *testing.T, path, want string) {
		t.Helper()
		if n := text(t, open(t, path), "SELECT count(*) FROM log"); n != want {
			t.Errorf("%s has %s rows instead of %s", path, n, want)
		}
	}
	path := filepath.Join(t.TempDir(), "sqube.db")
	e := opened(t, path)
	refused(t, copyFiles(t, path, ""))
	commit(t, e, []dialect.Write{create("a", []byte(`{}`))})
	refused(t, copyFiles(t, path, ""))
	killed := copyFiles(t, path, "", "-wal")
	rows(t, copyFiles(t, killed, "", "-wal"), "1")

	backup := backedUp(t, path)
	rows(t, copyFiles(t, backup, ""), "1")
	closed(t, e)
	rows(t, copyFiles(t, path, ""), "1")

	// A killed process leaves a complete file and log, which the next one completes.
	again := opened(t, killed)
	refused(t, copyFiles(t, killed, ""))
	commit(t, again, []dialect.Write{create("b", []byte(`{}`))})
	twice := copyFiles(t, killed, "", "-wal")
	closed(t, again)
	rows(t, copyFiles(t, killed, ""), "2")
	// So does a restore, with what it puts aside.
	aside, err := sqlite.Replace(t.Context(), twice, true, time.Now(), func(e *sqlite.Engine, _ dialect.End) error {
		_, err := e.Commit(t.Context(), []dialect.Write{create("c", []byte(`{}`))})
		return err
	})
	harness.Must(t, err)
	rows(t, copyFiles(t, aside, ""), "2")
	rows(t, twice, "1")
}

// TestLogOfAnotherDatabase puts a backup in the place of a database whose process was killed. SQLite would apply its log to the
// backup.
func TestLogOfAnotherDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	e := open(t, path)
	backup := backedUp(t, path)
	commit(t, e, []dialect.Write{create("a", []byte(`{}`))})
	killed := copyFiles(t, path, "", "-wal")
	harness.Must(t, os.Rename(backup, killed))
	before, err := os.ReadFile(killed)
	harness.Must(t, err)
	if _, err := sqlite.Open(t.Context(), killed); err == nil || !strings.Contains(err.Error(), killed+"-wal beside it is another database's, and would damage this one: move it away") {
		t.Errorf("open: %v", err)
	}
	if after, err := os.ReadFile(killed); err != nil || string(after) != string(before) {
		t.Errorf("the file was changed: %v", err)
	}
	harness.Must(t, os.Remove(killed+"-wal"))
	open(t, killed)
}

// TestLogThatSQLiteRemoved has another program look at the database of a killed process. It completes the file, and removes the
// log.
func TestLogThatSQLiteRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	e := opened(t, path)
	commit(t, e, []dialect.Write{create("a", []byte(`{}`))})
	killed := copyFiles(t, path, "", "-wal")
	closed(t, e)
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(killed + suffix)
		if err == nil {
			err = os.WriteFile(path+suffix, content, 0o600) // the database stays the same file
		}
		harness.Must(t, err)
	}
	look, err := sql.Open("sqlite", path)
	harness.Must(t, err)
	var rows int
	if err := errors.Join(look.QueryRowContext(t.Context(), "SELECT count(*) FROM log").Scan(&rows), look.Close()); err != nil || rows != 1 {
		t.Fatalf("%d rows, %v", rows, err)
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the log is still there: %v", err)
	}
	if err := sqlite.Verify(t.Context(), path); err != nil {
		t.Errorf("verify: %v", err)
	}
	if n := text(t, open(t, path), "SELECT count(*) FROM log"); n != "1" {
		t.Errorf("%s rows", n)
	}
}
