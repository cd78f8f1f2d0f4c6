package serve

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// What a server with the ConfigMap "kept" has left, for tests that begin with that.
const (
	leftKilled  = "killed"  // its data directory, with a write-ahead log
	leftStopped = "stopped" // its data directory
	leftBackup  = "backup"  // a folder with a backup, sqube.db
)

// original has those folders, until this process ends.
var original struct {
	sync.Mutex
	folder string
}

// left returns a copy of one of the folders.
func left(t *testing.T, name string) string {
	t.Helper()
	original.Lock()
	defer original.Unlock()
	if original.folder == "" {
		folder, err := os.MkdirTemp("", "sqube-serve-")
		harness.Must(t, err)
		_, err = harness.NewKeeper(folder) // removes it
		harness.Must(t, err)
		s := serve(t, nil)
		setData(t, client(t, s.Kubeconfig), "kept", "backup")
		s.Kill(t)
		harness.Must(t, os.CopyFS(filepath.Join(folder, leftKilled), os.DirFS(s.DataDir)))
		s.Start(t)
		settle(t, s)
		s.Stop(t)
		harness.Must(t, os.CopyFS(filepath.Join(folder, leftStopped), os.DirFS(s.DataDir)))
		harness.Must(t, os.Mkdir(filepath.Join(folder, leftBackup), 0o700))
		succeeds(t, []string{"backup", filepath.Join(folder, leftBackup, "sqube.db"), "--data-dir", s.DataDir})
		original.folder = folder
	}
	return copied(t, filepath.Join(original.folder, name))
}
