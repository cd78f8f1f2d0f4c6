package sqlite_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
)

// open opens the file at path and closes it with t.
func open(t testing.TB, path string) *sqlite.Engine {
	t.Helper()
	e, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// text returns what a statement selects, as one text.
func text(t testing.TB, e *sqlite.Engine, statement string) (s string) {
	t.Helper()
	if err := e.Query(t.Context(), statement, nil, func(row dialect.Row) error { return row.Scan(&s) }); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return s
}

// create returns the write that makes an object of resource pods.
func create(key string, value []byte) dialect.Write {
	return dialect.Write{Operation: dialect.Create, Resource: "pods", Key: key, Name: key, Labels: "{}", Fields: "{}", Value: value}
}

func TestSecondProcessIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	first, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := sqlite.Open(t.Context(), path); !errors.Is(err, dialect.ErrLocked) || !strings.Contains(err.Error(), path) {
			t.Errorf("opening it a second time: %v", err)
		}
	}
	if _, err := first.Commit(t.Context(), []dialect.Write{create("a", []byte(`{}`))}); err != nil {
		t.Errorf("the first one is disturbed: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if n := text(t, open(t, path), "SELECT count(*) FROM log"); n != "1" {
		t.Errorf("after the first one closed there are %s rows", n)
	}
}

// TestOlderProcessHasTheFile opens a file that an older sqube serves.
func TestOlderProcessHasTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	older, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(older.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), path); !errors.Is(err, dialect.ErrLocked) {
		t.Errorf("while it does: %v", err)
	}
	if err := older.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, path)
}

func TestFileThatIsNoDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	content := strings.Repeat("This is a letter, not a database.\n", 100)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), "not an SQLite database") {
		t.Errorf("opening a letter: %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != content {
		t.Errorf("the letter was changed (%v)", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	open(t, path) // the lock was let go of
}

func TestFolderThatMayNotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		if os.Geteuid() == 0 {
			// Permissions do not bind root, so this thread becomes nobody to the
			// file system. It ends with the goroutine, which keeps it.
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
		t.Errorf("opening a database in a folder that may not be written: %v", err)
	}
}

func TestPathWithEveryCharacter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a b", "ä?x#y%20&_pragma=z", "sqube;'\".db")
	e := open(t, path)
	if _, err := e.Commit(t.Context(), []dialect.Write{create("a", []byte(`{}`))}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		t.Errorf("the file is not there: %v", err)
	}
}

func TestSettingsOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "sqube.db")
	e := open(t, path)
	if _, err := e.Commit(t.Context(), []dialect.Write{create("a", []byte(`{}`))}); err != nil {
		t.Fatal(err)
	}
	for pragma, want := range map[string]string{"auto_vacuum": "2", "journal_mode": "wal", "page_size": "512", "query_only": "1"} {
		if got := text(t, e, "PRAGMA "+pragma); got != want {
			t.Errorf("%s is %s, want %s", pragma, got, want)
		}
	}
	for _, suffix := range []string{"", "-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s%s: %v, %v; want that only its owner may read it", path, suffix, info, err)
		}
	}
	if err := e.Query(t.Context(), "DELETE FROM log", nil, nil); err == nil {
		t.Error("a query may write")
	}
}

func TestCloseLeavesOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	e, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Commit(t.Context(), []dialect.Write{create("a", []byte(`{}`))}); err != nil {
		t.Fatal(err)
	}
	text(t, e, "SELECT count(*) FROM log")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a write-ahead log stays behind: %v", err)
	}
}

// TestLogOfACrash opens what a process leaves that is killed: what it committed is there, in the file itself.
func TestLogOfACrash(t *testing.T) {
	path, left := filepath.Join(t.TempDir(), "sqube.db"), filepath.Join(t.TempDir(), "sqube.db")
	e := open(t, path)
	if _, err := e.Commit(t.Context(), []dialect.Write{create("a", []byte(`{}`))}); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		if err == nil {
			err = os.WriteFile(left+suffix, data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	again := open(t, left)
	if log, err := os.Stat(left + "-wal"); err != nil || log.Size() != 0 {
		t.Errorf("the write-ahead log is %+v, %v", log, err)
	}
	if name := text(t, again, "SELECT name FROM log"); name != "a" {
		t.Errorf("the log holds %q", name)
	}
}
