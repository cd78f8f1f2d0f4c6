package serve

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
)

// openUmask runs sqube with a umask that lets everyone access its files, unless it restricts them.
func openUmask(cmd *exec.Cmd) {
	cmd.Args = append([]string{"sh", "-c", `umask 000; exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = "/bin/sh"
}

// TestFilesArePrivate checks that all that sqube writes, and all that it finds in its data directory, is accessible only to its
// owner.
func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	dataDir := filepath.Join(t.TempDir(), "data")
	s := serveIn(t, dataDir, nil, openUmask)
	settle(t, s)
	files(t, dataDir)
	s.Kill(t) // so that there is a write-ahead log
	harness.Must(t, filepath.WalkDir(dataDir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil {
			err = os.Chmod(path, 0o777)
		}
		return err
	}))
	s = serveIn(t, dataDir, nil, openUmask)
	settle(t, s)
	files(t, dataDir)

	out := t.TempDir()
	harness.Must(t, os.Chmod(out, 0o700))
	database := []string{"--data-dir", dataDir}
	succeeds(t, append([]string{"backup", filepath.Join(out, "backup.db")}, database...), openUmask)
	succeeds(t, []string{"restore", filepath.Join(out, "backup.db"), "--data-dir", filepath.Join(out, "restored")}, openUmask)
	succeeds(t, []string{"migrate", "up", "--data-dir", filepath.Join(out, "migrated")}, openUmask)
	succeeds(t, []string{"restore", filepath.Join(out, "backup.db"), "--data-dir", filepath.Join(out, "restored"), "--force"}, openUmask)
	succeeds(t, append([]string{"backup", filepath.Join(out, "closed.db")}, database...), func(cmd *exec.Cmd) {
		openUmask(cmd)
		cmd.Args[2] = strings.ReplaceAll(cmd.Args[2], "000", "777")
	})
	postgres := []string{"--datastore", harness.Postgres(t)}
	succeeds(t, append([]string{"restore", filepath.Join(out, "backup.db")}, postgres...), openUmask)
	succeeds(t, append([]string{"backup", filepath.Join(out, "archive")}, postgres...), openUmask)
	files(t, out)
}

// TestFolderOfOthers checks that the mode of a data directory that has other files stays unchanged.
func TestFolderOfOthers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	harness.Must(t, os.Chmod(dir, 0o755))
	harness.Must(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o644))
	s := serveIn(t, dir, nil)
	settle(t, s)
	for name, want := range map[string]fs.FileMode{".": 0o755, "other": 0o644, "sqube.db": 0o600, "sqube.db-wal": 0o600, "pki": 0o700} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s is %v, %v", name, info, err)
		}
	}
}

// looks returns the read-only commands on a database.
func looks(t *testing.T, database ...string) [][]string {
	t.Helper()
	to := "sqlite://" + filepath.Join(t.TempDir(), "to.db")
	source := strings.TrimPrefix(database[1], "sqlite://")
	return [][]string{
		append([]string{"check"}, database...),
		append([]string{"migrate", "status"}, database...),
		append([]string{"history", "services", "kubernetes"}, database...),
		append([]string{"show", "services", "kubernetes"}, database...),
		append([]string{"backup", filepath.Join(t.TempDir(), "backup")}, database...),
		{"restore", source, "--datastore", to},
	}
}

// TestLooksMakeNothing runs the read-only commands on missing databases.
func TestLooksMakeNothing(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		database := filepath.Join(dir, "sqube.db")
		for _, args := range append(looks(t, "--datastore", "sqlite://"+database),
			[]string{"import", "--from", "kine-sqlite", database, "--dry-run", "--data-dir", dir},
			[]string{"import", "--from", "etcd", database, "--dry-run", "--data-dir", dir},
			[]string{"kubeconfig", "--user", "jane", "--data-dir", dir}) {
			if args[0] == "kubeconfig" {
				refuses(t, "there is no certificate authority yet", args, openUmask)
				continue
			}
			refuses(t, database+": no such file or directory", args, openUmask)
		}
		if entries, err := os.ReadDir(dir); len(entries) > 0 {
			t.Errorf("made %v, %v", entries, err)
		}
	}
}

// TestLooksChangeNothing runs the read-only commands on databases without a server, and on read-only ones.
func TestLooksChangeNothing(t *testing.T) {
	t.Parallel()
	readOnly := func(dir string) option { return func(cmd *exec.Cmd) { faults.ReadOnly(t, cmd, dir) } }
	for _, name := range []string{leftKilled, leftStopped, leftBackup} {
		dir := left(t, name)
		before := contents(t, dir)
		delete(before, "sqube.db-shm") // the index of the log, which readers must create if it is missing
		unchanged := func() {
			t.Helper()
			after := contents(t, dir)
			delete(after, "sqube.db-shm")
			for file, text := range after {
				if string(text) != string(before[file]) {
					t.Errorf("%s: %s was changed", name, file)
				}
			}
			if len(after) != len(before) {
				t.Errorf("%s: there were %d files and are %d", name, len(before), len(after))
			}
		}
		database := []string{"--datastore", "sqlite://" + filepath.Join(dir, "sqube.db")}
		for _, args := range looks(t, database...) {
			succeeds(t, args, openUmask)
			unchanged()
		}
		for _, args := range looks(t, database...) {
			succeeds(t, args, readOnly(dir))
		}
		unchanged()
	}
	// Nor is another program's database.
	kine := filepath.Join(t.TempDir(), "state.db")
	db := harness.OpenDatabase(t, harness.Engine{Name: "sqlite", Datastore: "sqlite://" + kine})
	_, err := db.Exec("PRAGMA journal_mode = wal; CREATE TABLE kine (id INTEGER PRIMARY KEY, name TEXT, deleted INTEGER, lease INTEGER, value BLOB); INSERT INTO kine VALUES (1, '/registry/configmaps/default/x', 0, 0, '{}')")
	harness.Must(t, err)
	harness.Must(t, db.Close())
	before := contents(t, filepath.Dir(kine))
	for _, options := range [][]option{{openUmask}, {readOnly(filepath.Dir(kine))}} {
		succeeds(t, []string{"import", "--from", "kine-sqlite", kine, "--dry-run", "--data-dir", t.TempDir()}, options...)
	}
	if after := contents(t, filepath.Dir(kine)); len(after) != 1 || string(after["state.db"]) != string(before["state.db"]) {
		t.Errorf("after an import, beside %s there are %d files", kine, len(after))
	}

	crashed := left(t, leftKilled)
	harness.Must(t, os.Remove(filepath.Join(crashed, "sqube.db-shm")))
	refuses(t, "copy the file, and its -wal, to such a folder", []string{"check", "--data-dir", crashed}, readOnly(crashed))
}
