package serve

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
)

// TestOneServerOfAFile starts a second server on a database that is being served, by each path to the file.
func TestOneServerOfAFile(t *testing.T) {
	t.Parallel()
	first := serve(t, nil)
	file := filepath.Join(first.DataDir, "sqube.db")
	other := t.TempDir()
	link, linked, hard, mounted := filepath.Join(other, "link.db"), filepath.Join(other, "folder"), filepath.Join(other, "hard.db"), filepath.Join(other, "mounted.db")
	harness.Must(t, os.Symlink(file, link))
	harness.Must(t, os.Symlink(first.DataDir, linked))
	harness.Must(t, os.Link(file, hard))
	harness.Must(t, os.WriteFile(mounted, nil, 0o600))
	bind := func(cmd *exec.Cmd) { faults.Bind(t, cmd, file, mounted) }

	const served = "the database is in use by another sqube: stop that one first, or give this one another --datastore"
	const second, alone = "this file has a second name (a hard link)", "this file is mounted by itself"
	refuses(t, file+": "+served, serveArgs(t, first.DataDir))
	for path, options := range map[string][]option{file: nil, link: nil, filepath.Join(linked, "sqube.db"): nil, hard: nil, mounted: {bind}} {
		database := []string{"--datastore", "sqlite://" + path}
		refuses(t, served, serveArgs(t, t.TempDir(), database...), options...)
		refuses(t, served, append([]string{"migrate", "up"}, database...), options...)
	}
	first.WaitReady(t)
	// Reading it by a name without the write-ahead log, which has the last commits, fails.
	refuses(t, second, []string{"check", "--datastore", "sqlite://" + hard})
	harness.Must(t, os.Remove(hard))
	refuses(t, alone, []string{"check", "--datastore", "sqlite://" + mounted}, bind)
	for _, path := range []string{file, link, filepath.Join(linked, "sqube.db")} {
		succeeds(t, []string{"check", "--datastore", "sqlite://" + path})
	}

	// A server that starts after the first was killed would miss them, too.
	c := client(t, first.Kubeconfig)
	setData(t, c, "kept", "value")
	first.Kill(t)
	harness.Must(t, os.Link(file, hard))
	before := contents(t, first.DataDir)
	for _, path := range []string{file, hard} {
		refuses(t, second, serveArgs(t, t.TempDir(), "--datastore", "sqlite://"+path))
	}
	harness.Must(t, os.Remove(hard))
	refuses(t, alone, serveArgs(t, t.TempDir(), "--datastore", "sqlite://"+mounted), bind)
	for name, text := range contents(t, first.DataDir) {
		if string(text) != string(before[name]) {
			t.Errorf("%s was changed", name)
		}
	}
	harness.Must(t, os.CopyFS(filepath.Join(other, "data", "pki"), os.DirFS(filepath.Join(first.DataDir, "pki"))))
	again := serveIn(t, filepath.Join(other, "data"), []string{"--datastore", "sqlite://" + link})
	if value := data(t, client(t, again.Kubeconfig), "kept"); value != "value" {
		t.Errorf("through a symbolic link, the acknowledged value is %q", value)
	}
	if _, err := os.Stat(link + "-wal"); err == nil {
		t.Error("the write-ahead log is next to the symbolic link")
	}
}
