package sqlite_test

import (
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

// TestReplaceBesideAJournal restores over a file that a crashed program was writing, and where only that program's journal is
// left. SQLite would apply the journal to the restored file.
func TestReplaceBesideAJournal(t *testing.T) {
	source := filepath.Join(t.TempDir(), "crashed.db")
	db, err := sql.Open("sqlite", "file:"+source+"?_pragma=synchronous(off)") // then the journal is valid at once
	harness.Must(t, err)
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("CREATE TABLE something (x); INSERT INTO something VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	harness.Must(t, err)
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec("UPDATE something SET x = 2"); err != nil {
		t.Fatal(err)
	}
	journal, err := os.ReadFile(source + "-journal")
	if err != nil || len(journal) == 0 || journal[0] == 0 {
		t.Fatalf("there is no journal of %d bytes to test with: %v", len(journal), err)
	}
	file, err := os.ReadFile(source)
	harness.Must(t, err)

	for name, before := range map[string][]byte{"file and journal": file, "journal only": nil} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "sqube.db")
			if before != nil {
				harness.Must(t, os.WriteFile(path, before, 0o600))
			}
			harness.Must(t, os.WriteFile(path+"-journal", journal, 0o600))
			aside, err := sqlite.Replace(t.Context(), path, true, time.Now(), func(e *sqlite.Engine, _ dialect.End) error {
				committed, err := e.Commit(t.Context(), []dialect.Write{create("a", []byte(`{}`))})
				if err == nil && !committed.Landed[0] {
					err = errors.New("a conflict in a new database")
				}
				return err
			})
			harness.Must(t, err)
			if (aside != "") != (before != nil) {
				t.Errorf("the old file was renamed to %q", aside)
			}
			if n := text(t, open(t, path), "SELECT count(*) FROM log"); n != "1" {
				t.Errorf("the new database has %s rows", n)
			}
		})
	}
}

// TestOwnerOfANewDatabase restores as root to a folder of another user, whose server must be able to open the file.
func TestOwnerOfANewDatabase(t *testing.T) {
	const nobody = 65534
	dir := t.TempDir()
	if os.Geteuid() == 0 {
		harness.Must(t, os.Chown(dir, nobody, nobody))
	}
	path := filepath.Join(dir, "sqube.db")
	_, err := sqlite.Replace(t.Context(), path, false, time.Now(), func(e *sqlite.Engine, _ dialect.End) error {
		_, err := e.Commit(t.Context(), []dialect.Write{create("a", []byte(`{}`))})
		return err
	})
	harness.Must(t, err)
	owner := func(path string) uint32 {
		info, err := os.Stat(path)
		harness.Must(t, err)
		return info.Sys().(*syscall.Stat_t).Uid
	}
	if folder, file := owner(dir), owner(path); file != folder {
		t.Errorf("the file belongs to user %d, its folder to user %d", file, folder)
	}
}

// TestKilledExchange opens a database that a killed restore has left with two names.
func TestKilledExchange(t *testing.T) {
	for _, left := range []string{"sqube.db.before-restore-20261123T030000.000Z", ".sqube.db.unfinished-1"} {
		path := filepath.Join(t.TempDir(), "sqube.db")
		if _, err := sqlite.Migrate(t.Context(), path); err != nil {
			t.Fatal(err)
		}
		twin := filepath.Join(filepath.Dir(path), left)
		harness.Must(t, os.Link(path, twin))
		open(t, path)
		if _, err := os.Lstat(twin); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", left, err)
		}
	}
}
