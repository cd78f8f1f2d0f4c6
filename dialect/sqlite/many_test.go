package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

// TestMany opens and closes one of many databases: closed, it has no open file and takes hardly any space, and it is looked at when it was not
// closed.
func TestMany(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	many := func() *sqlite.Engine {
		t.Helper()
		e, err := sqlite.OpenWith(t.Context(), path, sqlite.Options{Many: true})
		harness.Must(t, err)
		return e
	}
	e := many()
	commit(t, e, []dialect.Write{create("ns/a", []byte(`{}`))})
	closed(t, e)
	e = many() // and nothing is written
	closed(t, e)
	if files := filesOf(t, path); files != "sqube.db sqube.db-mark" {
		t.Errorf("a closed database has the files %s", files)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > 32<<10 {
		t.Errorf("a small database has %v bytes, %v", info, err)
	}
	for _, link := range openFiles(t) {
		if strings.HasPrefix(link, path) {
			t.Errorf("%s is open", link)
		}
	}
	mark := sqlite.MarkOf(t, path)
	e = many()
	committed, err := e.Commit(t.Context(), []dialect.Write{create("ns/b", []byte(`{}`))})
	if err != nil || committed.Last != mark+1 {
		t.Errorf("revision %d follows %d, %v", committed.Last, mark, err)
	}
	if now := sqlite.MarkOf(t, path); now <= committed.Last { // a crash can lose it
		t.Errorf("revision %d may have been issued, and the mark is %d", committed.Last, now)
	}
	crashed := copyFiles(t, path, "", "-wal", "-mark")
	closed(t, e)
	damage(t, crashed)
	if e, err := sqlite.OpenWith(t.Context(), crashed, sqlite.Options{Many: true}); err == nil {
		closed(t, e)
		t.Error("a database that was not closed is opened without a look at it")
	}
}

func filesOf(t *testing.T, path string) string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	harness.Must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func openFiles(t *testing.T) (links []string) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	harness.Must(t, err)
	for _, e := range entries {
		link, err := os.Readlink(fmt.Sprint("/proc/self/fd/", e.Name()))
		if err == nil { // else it has just been closed
			links = append(links, link)
		}
	}
	return links
}

// damage overwrites a page in the middle of a database.
func damage(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	harness.Must(t, err)
	defer f.Close()
	info, err := f.Stat()
	harness.Must(t, err)
	_, err = f.WriteAt([]byte(strings.Repeat("damaged ", 64)), info.Size()/2/512*512)
	harness.Must(t, err)
}
