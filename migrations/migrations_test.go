package migrations_test

import (
	"database/sql"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/sqube/sqube/migrations"
	"github.com/sqube/sqube/test/harness"
)

// each runs a test on an empty database of each engine. open opens it anew,
// since Up closes what it is given on Postgres.
func each(t *testing.T, run func(t *testing.T, engine migrations.Engine, open func() *sql.DB)) {
	for engine, database := range map[migrations.Engine]func(t *testing.T) (driver, dsn string){
		migrations.SQLite:   func(t *testing.T) (string, string) { return "sqlite", filepath.Join(t.TempDir(), "sqube.db") },
		migrations.Postgres: func(t *testing.T) (string, string) { return "pgx", harness.Postgres(t) },
	} {
		t.Run(string(engine), func(t *testing.T) {
			driver, dsn := database(t)
			run(t, engine, func() *sql.DB {
				db, err := sql.Open(driver, dsn)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = db.Close() }) // Up may have closed it
				return db
			})
		})
	}
}

func up(t *testing.T, db *sql.DB, engine migrations.Engine) migrations.Status {
	t.Helper()
	before, err := migrations.Up(db, engine)
	if err != nil {
		t.Fatal(err)
	}
	return before
}

func read(t *testing.T, db *sql.DB, engine migrations.Engine) migrations.Status {
	t.Helper()
	status, err := migrations.Read(t.Context(), db, engine)
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func execute(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func number(t *testing.T, db *sql.DB, query string) (n int64) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// object is a row, as the log holds it.
const object = `
INSERT INTO log (id, replaces, operation, api_group, resource, key, namespace, name, uid, written_at, user_name, field_manager, labels, fields, value)
VALUES (2, 0, 'create', '', 'pods', 'default/a', 'default', 'a', 'u', 0, '', '', '{}', '{}', '{"kind":"Pod"}')`

func TestUpFromEmptyAndAgain(t *testing.T) {
	each(t, func(t *testing.T, engine migrations.Engine, open func() *sql.DB) {
		if status := read(t, open(), engine); status.Current != 0 || status.Newest == 0 || status.Interrupted {
			t.Errorf("an empty database stands at %+v", status)
		}
		if before := up(t, open(), engine); before.Current != 0 {
			t.Errorf("before the first Up it stood at %+v", before)
		}
		db := open()
		execute(t, db, object, "UPDATE counter SET revision = 2")
		if before := up(t, open(), engine); before.Current != before.Newest || before.Interrupted {
			t.Errorf("before the second Up it stood at %+v", before)
		}
		if status := read(t, open(), engine); status.Current != status.Newest || status.Interrupted {
			t.Errorf("after the second Up it stands at %+v", status)
		}
		if rows, revision := number(t, db, "SELECT count(*) FROM objects"), number(t, db, "SELECT revision FROM counter"); rows != 1 || revision != 2 {
			t.Errorf("the database has %d objects at revision %d, want what was put there", rows, revision)
		}
	})
}

func TestInterruptedStepIsTakenAgain(t *testing.T) {
	each(t, func(t *testing.T, engine migrations.Engine, open func() *sql.DB) {
		up(t, open(), engine)
		db := open()
		// As power lost in the middle of the first step leaves it.
		execute(t, db, object, "UPDATE counter SET revision = 2", "DROP VIEW history", "DROP INDEX log_expires", "UPDATE schema_migrations SET version = 1, dirty = true")
		if status := read(t, open(), engine); !status.Interrupted {
			t.Errorf("after an interruption it stands at %+v", status)
		}
		if before := up(t, open(), engine); !before.Interrupted {
			t.Errorf("before the step was taken again it stood at %+v", before)
		}
		if status := read(t, open(), engine); status.Interrupted || status.Current != status.Newest {
			t.Errorf("after the step was taken again it stands at %+v", status)
		}
		if rows, revision := number(t, db, "SELECT count(*) FROM history"), number(t, db, "SELECT revision FROM counter"); rows != 1 || revision != 2 {
			t.Errorf("the history has %d rows at revision %d, want what was put there", rows, revision)
		}
	})
}

func TestNewerDatabaseIsLeftAlone(t *testing.T) {
	each(t, func(t *testing.T, engine migrations.Engine, open func() *sql.DB) {
		up(t, open(), engine)
		execute(t, open(), "UPDATE schema_migrations SET version = 9999")
		if _, err := migrations.Up(open(), engine); !errors.Is(err, migrations.ErrNewer) {
			t.Errorf("Up of a newer database: %v", err)
		}
		if status := read(t, open(), engine); status.Current != 9999 || status.Interrupted {
			t.Errorf("a newer database stands at %+v", status)
		}
	})
}

// TestAutovacuum takes the step on tables that hold data, and again after it was cut off.
func TestAutovacuum(t *testing.T) {
	const settings = `SELECT count(*) FROM pg_class c LEFT JOIN pg_class toast ON toast.oid = c.reltoastrelid
WHERE c.relname = 'log' AND c.reloptions @> '{autovacuum_vacuum_scale_factor=0.01,autovacuum_vacuum_cost_delay=0}'
   AND toast.reloptions @> '{autovacuum_vacuum_scale_factor=0.01,autovacuum_vacuum_cost_delay=0}'
   OR c.relname = 'counter' AND c.reloptions @> '{fillfactor=10,autovacuum_vacuum_scale_factor=0,autovacuum_vacuum_cost_delay=0}'`
	each(t, func(t *testing.T, engine migrations.Engine, open func() *sql.DB) {
		up(t, open(), engine)
		db := open()
		down, err := os.ReadFile(filepath.Join(string(engine), "0002_autovacuum.down.sql"))
		if err != nil {
			t.Fatal(err)
		}
		execute(t, db, string(down), object, "UPDATE counter SET revision = 2")
		for _, stands := range []string{"version = 1", "version = 2, dirty = true"} {
			execute(t, db, "UPDATE schema_migrations SET "+stands)
			up(t, open(), engine)
			if status := read(t, open(), engine); status.Interrupted || status.Current != status.Newest {
				t.Errorf("from %s it came to %+v", stands, status)
			}
			if engine == migrations.Postgres {
				if n := number(t, db, settings); n != 2 {
					t.Errorf("from %s the settings are those of %d tables, not of 2", stands, n)
				}
			}
			if rows, revision := number(t, db, "SELECT count(*) FROM objects"), number(t, db, "SELECT revision FROM counter"); rows != 1 || revision != 2 {
				t.Errorf("from %s the database has %d objects at revision %d, want what was put there", stands, rows, revision)
			}
		}
	})
}

// TestReplicasMigrateOnce has several processes start at once on an empty
// Postgres database: one takes the steps, the others find them taken.
func TestReplicasMigrateOnce(t *testing.T) {
	dsn := harness.Postgres(t)
	const replicas = 8
	var done sync.WaitGroup
	found := make([]migrations.Status, replicas)
	for i := range replicas {
		done.Go(func() {
			db, err := sql.Open("pgx", dsn)
			if err != nil {
				t.Error(err)
				return
			}
			if found[i], err = migrations.Up(db, migrations.Postgres); err != nil {
				t.Error(err)
			}
		})
	}
	done.Wait()
	first := 0
	for _, status := range found {
		if status.Interrupted {
			t.Errorf("one came in between: %+v", status)
		}
		if status.Current == 0 {
			first++
		}
	}
	if first != 1 {
		t.Errorf("%d took the steps, want 1", first)
	}
}

// TestEnginesHaveTheSameSteps holds the engines to the same numbers and names,
// each with a way up and a way down.
func TestEnginesHaveTheSameSteps(t *testing.T) {
	steps := map[migrations.Engine][]string{}
	for _, engine := range []migrations.Engine{migrations.SQLite, migrations.Postgres} {
		files, err := os.ReadDir(string(engine))
		if err != nil {
			t.Fatal(err)
		}
		ways := map[string]int{}
		for _, file := range files {
			name, isUp := strings.CutSuffix(file.Name(), ".up.sql")
			name, isDown := strings.CutSuffix(name, ".down.sql")
			if isUp == isDown {
				t.Errorf("%s/%s is no step", engine, file.Name())
			}
			ways[name]++
		}
		for name, n := range ways {
			if n != 2 {
				t.Errorf("%s/%s goes in one direction only", engine, name)
			}
		}
		steps[engine] = slices.Sorted(maps.Keys(ways))
	}
	if !slices.Equal(steps[migrations.SQLite], steps[migrations.Postgres]) {
		t.Errorf("the engines have different steps: %v", steps)
	}
}
