package serve

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// forever is longer than any test.
const forever = time.Hour

// TestBackupsToOneName runs two overlapping backups with the same name, and kills one.
func TestBackupsToOneName(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		database := []string{"--datastore", engine.Datastore}
		succeeds(t, append([]string{"restore", filled(t)}, database...))
		dir := t.TempDir()
		file := filepath.Join(dir, "backup")
		backup := append([]string{"backup", file}, database...)
		disk := faults.NewDisk(t)

		// held returns a backup that is syncing its last bytes.
		held := func() *sqube.Process {
			t.Helper()
			disk.SlowSync(forever)
			p := sqube.Command(t, backup, disk.Run)
			awaitSync(t, disk)
			return p
		}
		first := held()
		refuses(t, "another sqube is writing "+file+": wait for it, or give another name", backup)
		disk.SlowSync(0)
		if code := first.Code(t); code != 0 {
			t.Fatalf("the first backup ended with code %d", code)
		}
		restored := []string{"--datastore", "sqlite://" + filepath.Join(t.TempDir(), "restored.db")}
		if engine.Name == "postgres" {
			restored = []string{"--datastore", harness.Postgres(t)}
		}
		succeeds(t, append([]string{"restore", file}, restored...))
		harness.Must(t, os.Remove(file))

		killed := held()
		killed.Kill(t)
		disk.SlowSync(0)
		if _, err := os.Lstat(file); err == nil {
			t.Error("a killed backup has its final name")
		}
		succeeds(t, backup)
		if left := names(t, dir); left != "backup" {
			t.Errorf("after a killed backup, the folder has %s", left)
		}

		harness.Must(t, os.Remove(file))
		ended := held()
		harness.Must(t, ended.Signal(syscall.SIGTERM))
		disk.SlowSync(0)
		if code := ended.Code(t); code != 0 { // it may have completed
			if left := names(t, dir); left != "" {
				t.Errorf("after a terminated backup, the folder has %s", left)
			}
		}
	})
}

// TestBackupOnAFullDisk makes backups fail: they leave nothing behind.
func TestBackupOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir, source := t.TempDir(), filled(t)
	disk := faults.NewDisk(t)
	disk.Full(true)
	refuses(t, "disk is full", []string{"backup", filepath.Join(dir, "backup"), "--datastore", "sqlite://" + source}, disk.Run)
	refuses(t, "make room on its disk", []string{"restore", source, "--data-dir", dir}, disk.Run)
	if left := names(t, dir); left != "" {
		t.Errorf("the folder has %s", left)
	}
	failing := faults.NewDisk(t)
	failing.FailSync(true)
	refuses(t, "input/output error", []string{"backup", filepath.Join(dir, "backup"), "--datastore", "sqlite://" + source}, failing.Run)
	refuses(t, "see whether its disk is full (df) or fails (dmesg)", []string{"restore", source, "--data-dir", dir}, failing.Run)
	if left := names(t, dir); left != "" {
		t.Errorf("the folder has %s", left)
	}
	readOnly := func(cmd *exec.Cmd) { faults.ReadOnly(t, cmd, dir) }
	refuses(t, "read-only file system", []string{"backup", filepath.Join(dir, "backup"), "--datastore", "sqlite://" + source}, readOnly)
	refuses(t, "read-only file system", []string{"restore", source, "--data-dir", dir}, readOnly)
}

// TestRestoreThatIsKilled kills restores halfway: the database is unchanged, and can be restored again.
func TestRestoreThatIsKilled(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		source := filled(t)
		database := []string{"--datastore", engine.Datastore}
		sources := []string{source}
		succeeds(t, append([]string{"restore", source}, database...))
		if engine.Name == "postgres" {
			archive := filepath.Join(t.TempDir(), "archive")
			succeeds(t, append([]string{"backup", archive}, database...))
			sources = append(sources, archive)
		}
		for _, source := range sources {
			before := rowsOf(t, engine)
			restore := append([]string{"restore", source, "--force"}, database...)
			p, release := heldRestore(t, engine, restore)
			p.Kill(t)
			release()
			harness.Retry(t, "the database is unchanged", func() error {
				if now := rowsOf(t, engine); now != before {
					return fmt.Errorf("it had %s and has %s", before, now)
				}
				return nil
			})
			if text := succeeds(t, restore); !strings.Contains(text, "what it held before is in ") {
				t.Errorf("the second restore prints %q", text)
			}
			succeeds(t, append([]string{"check"}, database...))
		}
		if engine.Name == "sqlite" {
			left := names(t, filepath.Dir(strings.TrimPrefix(engine.Datastore, "sqlite://")))
			if !regexp.MustCompile(`^sqube\.db sqube\.db\.before-restore-\w+\.\w+$`).MatchString(left) {
				t.Errorf("the folder has %s", left)
			}
		}
	})
}

// TestRestoresAtOnce starts a restore, and a server, during another restore.
func TestRestoresAtOnce(t *testing.T) {
	t.Parallel()
	source := filled(t)
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		database := []string{"--datastore", engine.Datastore}
		restore := append([]string{"restore", source, "--force"}, database...)
		succeeds(t, restore)
		first, release := heldRestore(t, engine, restore)
		refuses(t, "the database is in use by another sqube", restore)
		if engine.Name == "sqlite" { // the other would wait for the tables
			refuses(t, "the database is in use by another sqube", serveArgs(t, t.TempDir(), database...))
			refuses(t, "the database is in use by another sqube", append([]string{"migrate", "up"}, database...))
		}
		release()
		if code := first.Code(t); code != 0 {
			t.Errorf("the first restore ended with code %d", code)
		}
		succeeds(t, append([]string{"check"}, database...))
	})
}

// heldRestore starts a restore, and returns when it is halfway.
func heldRestore(t *testing.T, engine harness.Engine, args []string) (p *sqube.Process, release func()) {
	t.Helper()
	if engine.Name == "sqlite" {
		disk := faults.NewDisk(t)
		disk.SlowSync(forever)
		p = sqube.Command(t, args, disk.Run)
		awaitSync(t, disk)
		return p, func() { disk.SlowSync(0) }
	}
	db := harness.OpenDatabase(t, engine)
	reader, err := db.Begin()
	harness.Must(t, err)
	_, err = reader.Exec("LOCK TABLE log IN ACCESS SHARE MODE")
	harness.Must(t, err)
	p = sqube.Command(t, args)
	harness.Eventually(t, "the restore waits for the table", func() bool {
		var waiting int
		err := db.QueryRow("SELECT count(*) FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&waiting)
		return err == nil && waiting > 0
	})
	return p, func() { harness.Must(t, reader.Rollback()) }
}

// rowsOf summarizes the log of a database.
func rowsOf(t *testing.T, engine harness.Engine) (sum string) {
	t.Helper()
	db := openToRead(t, engine)
	defer db.Close()
	row := db.QueryRow("SELECT count(*) || ' rows of revision ' || max(id) || ' of ' || (SELECT max(revision) FROM counter) FROM log")
	harness.Must(t, row.Scan(&sum))
	return sum
}

// awaitSync waits until a sync waits for the disk.
func awaitSync(t *testing.T, disk *faults.Disk) {
	t.Helper()
	harness.Eventually(t, "it waits for the disk", func() bool { return disk.Syncing() != 0 })
}

// filled returns a backup of a server's database.
func filled(t *testing.T) string {
	t.Helper()
	return filepath.Join(left(t, leftBackup), "sqube.db")
}

// names returns the names in a folder, with spaces between.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	harness.Must(t, err)
	var all []string
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return strings.Join(all, " ")
}
