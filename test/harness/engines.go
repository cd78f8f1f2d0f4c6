package harness

import (
	"path/filepath"
	"testing"
)

// Engine is a database engine with an empty database for one test.
type Engine struct {
	// Name is "sqlite" or "postgres".
	Name string
	// Datastore is the database in the form of `sqube serve --datastore`: sqlite://PATH or postgres://DSN.
	Datastore string
}

// Engines runs the test once on each engine, as the subtests "sqlite" and "postgres". An unavailable engine fails its subtest:
// no engine is ever skipped.
func Engines(t *testing.T, run func(t *testing.T, engine Engine)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { run(t, Engine{Name: "sqlite", Datastore: SQLite(t)}) })
	t.Run("postgres", func(t *testing.T) { run(t, Engine{Name: "postgres", Datastore: Postgres(t)}) })
}

// SQLite returns the sqlite:// URL of a database file that does not exist yet, in a directory that is removed when the test
// ends.
func SQLite(t testing.TB) string {
	t.Helper()
	return "sqlite://" + filepath.Join(t.TempDir(), "sqube.db")
}
