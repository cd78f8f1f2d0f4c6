package harness

import (
	"database/sql"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

// OpenDatabase opens the database of an engine from outside, until the test ends. The placeholders of statements are $1, $2 and
// so on. On SQLite, what a running sqube has written can be read; write only while it is stopped.
func OpenDatabase(t testing.TB, engine Engine) *sql.DB {
	t.Helper()
	driver, dsn := "pgx", engine.Datastore
	if path, ok := strings.CutPrefix(engine.Datastore, "sqlite://"); ok {
		driver, dsn = "sqlite", "file:"+path
	}
	db, err := sql.Open(driver, dsn)
	Must(t, err)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}
