package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
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

func TestSecondProcessIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	first := opened(t, path)
	for range 2 {
		if _, err := sqlite.Open(t.Context(), path); !errors.Is(err, dialect.ErrLocked) || !strings.Contains(err.Error(), path) {
			t.Errorf("opening it again: %v", err)
		}
	}
	if _, err := first.Commit(t.Context(), []dialect.Write{create("a", []byte(`{}`))}); err != nil {
		t.Errorf("the first engine fails: %v", err)
	}
	closed(t, first)
	if n := text(t, open(t, path), "SELECT count(*) FROM log"); n != "1" {
		t.Errorf("after the first engine closed there are %s rows", n)
	}
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

func TestFileThatIsNotADatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	content := strings.Repeat("This is text, not a database.\n", 100)
	harness.Must(t, os.WriteFile(path, []byte(content), 0o600))
	if _, err := sqlite.Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), "not an SQLite database") {
		t.Errorf("opening a text file: %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != content {
		t.Errorf("the text file was changed (%v)", err)
	}
	harness.Must(t, os.Remove(path))
	open(t, path) // the lock was released
}

func TestFolderThatMayNotBeWritten(t *testing.T) {
	dir := t.TempDir()
	harness.Must(t, os.Chmod(dir, 0o555))
	failed := make(chan error)
	go func() {
		if os.Geteuid() == 0 {
			// Root ignores permissions, so this thread becomes nobody for the file system. It is locked to the goroutine and ends
			// with it.
			runtime.LockOSThread()
			if err := syscall.Setfsuid(65534); err != nil {
				failed <- err
				return
			}
		}
		_, err := sqlite.Open(context.Background(), filepath.Join(dir, "sqube.db"))
		failed <- err
	}()
	if err := <-failed; !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), dir) {
		t.Errorf("opening a database in a read-only folder: %v", err)
	}
}

func TestPathWithEveryCharacter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b", "ä?x#y%20&_pragma=z", "sqube;'\".db")
	e := open(t, path)
	commit(t, e, []dialect.Write{create("a", []byte(`{}`))})
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		t.Errorf("the file is missing: %v", err)
	}
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

func TestCloseLeavesOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	e := opened(t, path)
	commit(t, e, []dialect.Write{create("a", []byte(`{}`))})
	text(t, e, "SELECT count(*) FROM log")
	closed(t, e)
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a write-ahead log remains: %v", err)
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
