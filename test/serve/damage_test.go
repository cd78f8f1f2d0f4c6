package serve

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
)

// TestDamage starts servers on damaged or unusable data directories. Each prints one line with the problem and what to do, and
// changes nothing.
func TestDamage(t *testing.T) {
	t.Parallel()
	const page = 512
	for _, test := range []struct {
		name  string
		of    string
		do    func(t *testing.T, dataDir string)
		start func(t *testing.T, dataDir string) option
		want  string
	}{
		{name: "header", of: leftStopped, do: overwrite(0, 16), want: "this file is not an SQLite database: move it away or give another path"},
		{name: "tables of another program", of: leftStopped, do: func(t *testing.T, dataDir string) {
			path := filepath.Join(dataDir, "sqube.db")
			harness.Must(t, os.Remove(path))
			if _, err := harness.OpenDatabase(t, harness.Engine{Name: "sqlite", Datastore: "sqlite://" + path}).Exec("CREATE TABLE log (line text)"); err != nil {
				t.Fatal(err)
			}
		}, want: `it has a "log" that sqube did not make: give sqube a database of its own`},
		{name: "first page", of: leftStopped, do: overwrite(100, page-100), want: "restore a backup (sqube restore --force), or have sqlite3 recover what it can (.recover)"},
		{name: "page of an index", of: leftStopped, do: overwrite(6*page, page), want: "the database is damaged: *** in database main *** Tree 7 page 7"},
		{name: "page of rows", of: leftStopped, do: overwrite(39*page, page), want: "the database is damaged: "},
		{name: "cut off", of: leftStopped, do: func(t *testing.T, dataDir string) {
			harness.Must(t, os.Truncate(filepath.Join(dataDir, "sqube.db"), 20*page))
		},
			want: "restore a backup (sqube restore --force)"},
		{name: "write-ahead log alone", of: leftKilled, do: func(t *testing.T, dataDir string) { harness.Must(t, os.Remove(filepath.Join(dataDir, "sqube.db"))) },
			want: "sqube.db-wal is there, with the last commits: put the file back, or move the log away too"},
		{name: "write-ahead log of an empty file", of: leftKilled, do: func(t *testing.T, dataDir string) {
			harness.Must(t, os.Truncate(filepath.Join(dataDir, "sqube.db"), 0))
		},
			want: "sqube.db-wal is there, with the last commits: put the file back, or move the log away too"},
		{name: "read-only file system", of: leftKilled, want: "read-only file system: mount its file system for writing, or put the database elsewhere",
			start: func(t *testing.T, dataDir string) option {
				return func(cmd *exec.Cmd) { faults.ReadOnly(t, cmd, dataDir) }
			}},
		{name: "no locks", of: leftKilled, want: "no locks available: its file system has no locks (NFS without a lock daemon?): put the database on a local disk",
			start: func(t *testing.T, _ string) option {
				return func(cmd *exec.Cmd) { faults.WithoutLocks(t, cmd) }
			}},
		{name: "database of another user", of: leftStopped, do: foreign("sqube.db"), start: nobody,
			want: "permission denied: make the folder, and what is in it, writable for the user that runs sqube"},
		{name: "write-ahead log of another user", of: leftKilled, do: foreign("sqube.db-wal"), start: nobody,
			want: "make the folder, and what is in it, writable for the user that runs sqube"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dataDir := left(t, test.of)
			if test.do != nil {
				test.do(t, dataDir)
			}
			before := contents(t, dataDir)
			var options []option
			if test.start != nil {
				options = append(options, test.start(t, dataDir))
			}
			refuses(t, test.want, serveArgs(t, dataDir), options...)
			after := contents(t, dataDir)
			for name, text := range before {
				if name != "sqube.db-shm" && !bytes.Equal(after[name], text) {
					t.Errorf("%s was changed", name)
				}
			}
		})
	}
}

// overwrite damages n bytes of the database.
func overwrite(offset int64, n int) func(*testing.T, string) {
	return func(t *testing.T, dataDir string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(dataDir, "sqube.db"), os.O_RDWR, 0)
		harness.Must(t, err)
		defer f.Close()
		_, err = f.WriteAt(bytes.Repeat([]byte{0x55}, n), offset)
		harness.Must(t, err)
	}
}

// foreign makes a file read-only for the user that runs sqube.
func foreign(name string) func(*testing.T, string) {
	return func(t *testing.T, dataDir string) {
		t.Helper()
		own(t, dataDir)
		path := filepath.Join(dataDir, name)
		harness.Must(t, os.Chmod(path, 0o400))
		if os.Geteuid() == 0 {
			harness.Must(t, os.Chown(path, 0, 0))
		}
	}
}

// own gives a folder with its content to the user nobody.
func own(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	harness.Must(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chown(path, nobodyID, nobodyID)
	}))
}

func nobody(*testing.T, string) option { return asNobody }

// copied returns a copy of a data directory, in a folder that other users can enter.
func copied(t *testing.T, dataDir string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sqube-serve-")
	harness.Must(t, err)
	t.Cleanup(func() { harness.Must(t, os.RemoveAll(dir)) })
	harness.Must(t, os.Chmod(dir, 0o755))
	to := filepath.Join(dir, "data")
	harness.Must(t, os.CopyFS(to, os.DirFS(dataDir)))
	harness.Must(t, filepath.WalkDir(to, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			err = os.Chmod(path, 0o700)
		}
		return err
	}))
	return to
}

// contents returns all files under dir.
func contents(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	harness.Must(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		found[filepath.Base(path)] = text
		return err
	}))
	return found
}
