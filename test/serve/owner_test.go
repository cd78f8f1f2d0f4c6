package serve

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// TestRootLeavesFilesToTheServer runs commands as root, and a server by mistake, in the folder of another user: everything that
// they create belongs to that user, whose server works with it.
func TestRootLeavesFilesToTheServer(t *testing.T) {
	t.Parallel()
	folder := func() string {
		dir, err := os.MkdirTemp("", "sqube-serve-")
		harness.Must(t, err)
		t.Cleanup(func() { harness.Must(t, os.RemoveAll(dir)) })
		own(t, dir)
		return dir
	}
	belongs := func(after, dir string) {
		t.Helper()
		owner, err := os.Stat(dir)
		harness.Must(t, err)
		harness.Must(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if got, want := info.Sys().(*syscall.Stat_t), owner.Sys().(*syscall.Stat_t); err == nil && (got.Uid != want.Uid || got.Gid != want.Gid) {
				t.Errorf("after %s, %s belongs to user %d, its folder to user %d", after, path, got.Uid, want.Uid)
			}
			return err
		}))
	}
	base := folder()
	dataDir := filepath.Join(base, "a", "data")
	succeeds(t, []string{"migrate", "up", "--data-dir", dataDir})
	belongs("migrate up", base)
	s := serveIn(t, dataDir, nil, asNobody)
	settle(t, s)
	harness.Must(t, os.Remove(filepath.Join(dataDir, "sqube.db-reserve")))
	s.Kill(t)
	harness.Must(t, os.Remove(filepath.Join(dataDir, "sqube.db-shm")))
	succeeds(t, []string{"check", "--data-dir", dataDir})
	belongs("check after a crash", base)
	succeeds(t, []string{"check", "--repair", "--data-dir", dataDir})
	belongs("check --repair", base)
	backup := filepath.Join(t.TempDir(), "backup.db")
	succeeds(t, []string{"backup", backup, "--data-dir", dataDir})
	succeeds(t, []string{"restore", backup, "--force", "--data-dir", dataDir})
	belongs("restore --force", base)
	serveIn(t, dataDir, nil, asNobody).Stop(t)

	base = folder()
	dataDir = filepath.Join(base, "data")
	archive := []string{"--archive", filepath.Join(base, "archive")}
	s = serveIn(t, dataDir, archive)
	settle(t, s)
	belongs("serve", base)
	s.Kill(t)
	belongs("serve, killed,", base)
	s = serveIn(t, dataDir, archive, asNobody)
	settle(t, s)
	s.Stop(t)
	belongs("serve as the other user", base)
}
