package sqlite_test

import (
	"database/sql"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

// open opens the file at path and closes it when t ends.
func open(t testing.TB, path string) *sqlite.Engine {
	t.Helper()
	e := opened(t, path)
	t.Cleanup(func() { closed(t, e) })
	return e
}

// opened opens the file at path, which the test closes.
func opened(t testing.TB, path string) *sqlite.Engine {
	t.Helper()
	e, err := sqlite.Open(t.Context(), path)
	harness.Must(t, err)
	return e
}

func closed(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// text returns what a statement selects as a string.
func text(t testing.TB, e *sqlite.Engine, statement string) (s string) {
	t.Helper()
	if err := e.Query(t.Context(), statement, nil, func(row dialect.Row) error { return row.Scan(&s) }); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return s
}

// create returns a write that creates an object of resource pods.
func create(key string, value []byte) dialect.Write {
	return dialect.Write{Operation: dialect.Create, Resource: "pods", Key: key, Name: key, Labels: "{}", Fields: "{}", Value: value}
}

// TestOlderProcessHasTheFile opens a file that an older sqube serves.
func TestOlderProcessHasTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	older, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	harness.Must(t, err)
	harness.Must(t, syscall.Flock(int(older.Fd()), syscall.LOCK_EX))
	if _, err := sqlite.Open(t.Context(), path); !errors.Is(err, dialect.ErrLocked) {
		t.Errorf("open: %v", err)
	}
	closed(t, older)
	open(t, path)
}

func TestSettingsOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "sqube.db")
	e := open(t, path)
	commit(t, e, []dialect.Write{create("a", []byte(`{}`))})
	for pragma, want := range map[string]string{"auto_vacuum": "2", "journal_mode": "wal", "page_size": "512", "query_only": "1"} {
		if got := text(t, e, "PRAGMA "+pragma); got != want {
			t.Errorf("%s is %s, want %s", pragma, got, want)
		}
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s%s: %v, %v; want a mode that only lets the owner read it", path, suffix, info, err)
		}
	}
	if err := e.Query(t.Context(), "DELETE FROM log", nil, nil); err == nil {
		t.Error("a query can write")
	}
}

// TestLogOfACrash opens the files of a killed process: its commits are there, in the database file itself.
func TestLogOfACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	e := open(t, path)
	commit(t, e, []dialect.Write{create("a", []byte(`{}`))})
	left := copyFiles(t, path, "", "-wal")
	again := open(t, left)
	if name := text(t, again, "SELECT name FROM log"); name != "a" {
		t.Errorf("the log has %q", name)
	}
	db, err := sql.Open("sqlite", "file:"+copyFiles(t, left, "")+"?immutable=1") // without the write-ahead log
	harness.Must(t, err)
	defer db.Close()
	var name string
	if err := db.QueryRowContext(t.Context(), "SELECT name FROM log").Scan(&name); err != nil || name != "a" {
		t.Errorf("the file has %q, %v", name, err)
	}
}
