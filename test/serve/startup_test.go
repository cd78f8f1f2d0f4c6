package serve

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// serveArgs returns the arguments of a server on a data directory, with a free port.
func serveArgs(t *testing.T, dataDir string, more ...string) []string {
	t.Helper()
	return append([]string{"serve", "--data-dir", dataDir, "--bind-address", "127.0.0.1", "--secure-port", freePort(t)}, more...)
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Must(t, err)
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	dataDir := filepath.Join(t.TempDir(), "data")
	refuses(t, "port "+port+" of 127.0.0.1 is in use: stop the process that listens there, or choose another port with --secure-port",
		[]string{"serve", "--data-dir", dataDir, "--bind-address", "127.0.0.1", "--secure-port", port})
	if _, err := os.Stat(dataDir); err == nil {
		t.Error("left a data directory behind")
	}
}

// TestDataDirNotWritable starts sqube as a user that may not write there.
func TestDataDirNotWritable(t *testing.T) {
	t.Parallel()
	// Not under t.TempDir, which other users can't even enter.
	dir, err := os.MkdirTemp("", "sqube-serve-")
	harness.Must(t, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	locked := filepath.Join(dir, "locked")
	harness.Must(t, os.Mkdir(locked, 0o555))
	harness.Must(t, os.Chmod(dir, 0o755))
	for _, dataDir := range []string{locked, filepath.Join(locked, "data")} {
		refuses(t, "permission denied: make the folder, and what is in it, writable for the user that runs sqube", serveArgs(t, dataDir), asNobody)
		refuses(t, "make the data directory and its contents readable and writable for the user that runs sqube",
			serveArgs(t, dataDir, "--datastore", harness.Postgres(t)), asNobody)
	}
	file := filepath.Join(dir, "file")
	harness.Must(t, os.WriteFile(file, nil, 0o644))
	refuses(t, "not a directory", serveArgs(t, file))
}

func TestSQLiteFile(t *testing.T) {
	t.Parallel()
	t.Run("is not a database", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "notes.txt")
		text := strings.Repeat("This is not a database. ", 100)
		harness.Must(t, os.WriteFile(path, []byte(text), 0o600))
		refuses(t, "this file is not an SQLite database: move it away or give another path", serveArgs(t, t.TempDir(), "--datastore", "sqlite://"+path))
		refuses(t, "this file is not an SQLite database", []string{"migrate", "status", "--datastore", "sqlite://" + path})
		if now, err := os.ReadFile(path); err != nil || string(now) != text {
			t.Errorf("the file was changed: %v", err)
		}
	})
	t.Run("is a directory", func(t *testing.T) {
		dir := t.TempDir()
		refuses(t, dir+": is a directory", serveArgs(t, t.TempDir(), "--datastore", "sqlite://"+dir))
	})
}
