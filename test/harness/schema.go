package harness

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Schemas returns the paths of the schema's steps on an engine, in order. Step n results in version n.
func Schemas(t testing.TB, engine string) []string {
	t.Helper()
	return glob(t, engine, "*.up.sql")
}

// LaySchema fills the empty database of an engine with what a server left when version was the newest schema: the steps up to
// that, and the rows of migrations/testdata. It returns the database, which is closed when the test ends.
func LaySchema(t testing.TB, engine Engine, version int) *sql.DB {
	t.Helper()
	db := OpenDatabase(t, engine)
	db.SetMaxOpenConns(1) // the setting below is that of a connection
	if engine.Name == "sqlite" {
		lay(t, db, "PRAGMA auto_vacuum = 2")
	}
	for _, step := range Schemas(t, engine.Name)[:version] {
		lay(t, db, read(t, step))
	}
	// The rows are in the format of the newest file that is not newer than the schema.
	rows := ""
	for _, file := range glob(t, "testdata", "*.sql") {
		if filepath.Base(file) <= fmt.Sprintf("%04d.sql", version) {
			rows = file
		}
	}
	lay(t, db, read(t, rows))
	lay(t, db, "CREATE TABLE schema_migrations (version bigint NOT NULL PRIMARY KEY, dirty boolean NOT NULL)")
	lay(t, db, fmt.Sprintf("INSERT INTO schema_migrations VALUES (%d, false)", version))
	return db
}

func lay(t testing.TB, db *sql.DB, statements string) {
	t.Helper()
	if _, err := db.Exec(statements); err != nil {
		t.Fatalf("%.100s: %v", statements, err)
	}
}

// glob returns the files of a folder of migrations, in the order of their numbers.
func glob(t testing.TB, folder, pattern string) []string {
	t.Helper()
	root, err := Repository()
	Must(t, err)
	files, err := filepath.Glob(filepath.Join(root, "migrations", folder, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in migrations/%s: %v", pattern, folder, err)
	}
	return files
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	Must(t, err)
	return string(text)
}

// Repository returns the nearest directory above the test's that has a Makefile.
func Repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "Makefile")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("found no Makefile above the test's directory")
		}
		dir = parent
	}
}
