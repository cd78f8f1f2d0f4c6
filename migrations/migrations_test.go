package migrations_test

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/migrations"
	"github.com/sqube/sqube/test/harness"
)

// up migrates a database. It opens its own connection, since Up closes what it is given on Postgres.
func up(t *testing.T, engine harness.Engine) migrations.Status {
	t.Helper()
	before, err := migrations.Up(t.Context(), harness.OpenDatabase(t, engine), migrations.Engine(engine.Name))
	harness.Must(t, err)
	return before
}

func read(t *testing.T, engine harness.Engine) migrations.Status {
	t.Helper()
	status, err := migrations.Read(t.Context(), harness.OpenDatabase(t, engine), migrations.Engine(engine.Name))
	harness.Must(t, err)
	return status
}

func execute(t *testing.T, db *sql.DB, statements string) {
	t.Helper()
	if _, err := db.Exec(statements); err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
}

// contents returns the rows of the log and its views, one per line.
func contents(t *testing.T, db *sql.DB) string {
	t.Helper()
	var text strings.Builder
	for _, query := range []string{
		"SELECT revision, compacted FROM counter",
		"SELECT id, replaces, replaced_by, operation, api_group, resource, key, namespace, name, uid, written_at, expires_at, user_name, field_manager, labels, fields, value FROM log ORDER BY id",
		"SELECT resource_version, api_group, resource, namespace, name, value FROM objects ORDER BY resource_version",
		"SELECT resource_version, operation, api_group, resource, namespace, name, user_name, value FROM history",
	} {
		rows, err := db.Query(query)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		columns, err := rows.Columns()
		harness.Must(t, err)
		cells, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			fmt.Fprintln(&text, cells)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	return text.String()
}

// TestUpFromEachSchema migrates what servers have left at each version of the schema to the newest one, also after a power
// failure during a step. That step runs again, since it is not known whether it happened. No row changes.
func TestUpFromEachSchema(t *testing.T) {
	newest := len(harness.Schemas(t, "sqlite"))
	for version := 1; version <= newest; version++ {
		left := map[string]string{
			"whole":                         "",
			"its step not recorded as done": "UPDATE schema_migrations SET dirty = true",
		}
		if version < newest {
			left["the next step started"] = "UPDATE schema_migrations SET version = version + 1, dirty = true"
		}
		if version == 1 {
			left["its step half done"] = "DROP VIEW history; DROP INDEX log_expires; UPDATE schema_migrations SET dirty = true"
		}
		for how, statements := range left {
			t.Run(fmt.Sprintf("schema %d, %s", version, how), func(t *testing.T) {
				harness.Engines(t, func(t *testing.T, engine harness.Engine) {
					db := harness.LaySchema(t, engine, version)
					want := contents(t, db)
					execute(t, db, statements)
					if before := up(t, engine); before.Interrupted != (how != "whole") || before.Newest != uint(newest) {
						t.Errorf("before Up, the status was %+v", before)
					}
					changed := version < newest || how != "whole"
					if status := read(t, engine); status.Usable() != nil || changed != (status.Release == migrations.Release) {
						t.Errorf("after Up, the status is %+v", status)
					}
					if got := contents(t, db); got != want {
						t.Errorf("the rows are\n%s\ninstead of\n%s", got, want)
					}
				})
			})
		}
	}
}

// TestFailedStep fails a step that lacks a table.
func TestFailedStep(t *testing.T) {
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		db := harness.LaySchema(t, engine, 1)
		execute(t, db, "DROP TABLE counter")
		_, err := migrations.Up(t.Context(), harness.OpenDatabase(t, engine), migrations.Engine(engine.Name))
		if err == nil || !strings.Contains(err.Error(), " of the schema failed, nothing was changed, ") || strings.Contains(err.Error(), "ALTER TABLE") {
			t.Errorf("the error of a failed step is %v", err)
		}
		if status := read(t, engine); status.Usable() == nil {
			t.Errorf("after the failure, the status is %+v", status)
		}
		execute(t, db, "CREATE TABLE counter (one bigint PRIMARY KEY, revision bigint NOT NULL, compacted bigint NOT NULL)")
		execute(t, db, "INSERT INTO counter VALUES (1, 232, 200)")
		up(t, engine)
		if status := read(t, engine); status.Usable() != nil {
			t.Errorf("after a retry, the status is %+v", status)
		}
	})
}

// TestOtherTables refuses databases in which another program has something of a name that the steps use, and leaves them as they are.
func TestOtherTables(t *testing.T) {
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		db := harness.OpenDatabase(t, engine)
		names := map[string]string{
			"sqlite":   "SELECT count(*) FROM sqlite_master",
			"postgres": "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace",
		}[engine.Name]
		for name, other := range map[string][2]string{
			"log":      {"CREATE TABLE log (line text)", "DROP TABLE log"},
			"objects":  {"CREATE VIEW objects AS SELECT 1 AS n", "DROP VIEW objects"},
			"log_live": {"CREATE TABLE log_live (n int)", "DROP TABLE log_live"},
		} {
			execute(t, db, other[0])
			_, err := migrations.Up(t.Context(), harness.OpenDatabase(t, engine), migrations.Engine(engine.Name))
			if want := fmt.Sprintf("it has a %q that sqube did not make", name); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%s: %v", other[0], err)
			}
			var n int
			if err := db.QueryRow(names).Scan(&n); err != nil || n != 1 {
				t.Errorf("%s: there are %d things: %v", other[0], n, err)
			}
			execute(t, db, other[1])
		}
		if engine.Name == "postgres" { // only the first step finds out
			execute(t, db, "CREATE TYPE log AS ENUM ()")
			if _, err := migrations.Up(t.Context(), harness.OpenDatabase(t, engine), migrations.Postgres); err == nil || !strings.HasPrefix(err.Error(), "step 1 of the schema failed") {
				t.Errorf("a type: %v", err)
			}
			var n int
			if err := db.QueryRow(names).Scan(&n); err != nil || n != 0 {
				t.Errorf("a type: there are %d things: %v", n, err)
			}
			execute(t, db, "DROP TYPE log")
		}
		execute(t, db, "CREATE TABLE unrelated (n int)")
		up(t, engine)
	})
}

// TestAutovacuum checks what the second step sets on Postgres.
func TestAutovacuum(t *testing.T) {
	engine := harness.Engine{Name: "postgres", Datastore: harness.Postgres(t)}
	db := harness.LaySchema(t, engine, 1)
	up(t, engine)
	var tables int
	if err := db.QueryRow(`SELECT count(*) FROM pg_class c LEFT JOIN pg_class toast ON toast.oid = c.reltoastrelid
WHERE c.relname = 'log' AND c.reloptions @> '{autovacuum_vacuum_scale_factor=0.01,autovacuum_vacuum_cost_delay=0}'
   AND toast.reloptions @> '{autovacuum_vacuum_scale_factor=0.01,autovacuum_vacuum_cost_delay=0}'
   OR c.relname = 'counter' AND c.reloptions @> '{fillfactor=10,autovacuum_vacuum_scale_factor=0,autovacuum_vacuum_cost_delay=0}'`).Scan(&tables); err != nil || tables != 2 {
		t.Errorf("%d tables have the settings, want 2: %v", tables, err)
	}
}

// TestEnginesHaveTheSameSteps checks that all engines have steps of the same numbers and names, each with an up and a down file.
func TestEnginesHaveTheSameSteps(t *testing.T) {
	steps := map[migrations.Engine][]string{}
	for _, engine := range []migrations.Engine{migrations.SQLite, migrations.Postgres} {
		files, err := os.ReadDir(string(engine))
		harness.Must(t, err)
		ways := map[string]int{}
		for _, file := range files {
			name, isUp := strings.CutSuffix(file.Name(), ".up.sql")
			name, isDown := strings.CutSuffix(name, ".down.sql")
			if isUp == isDown {
				t.Errorf("%s/%s is not a step", engine, file.Name())
			}
			ways[name]++
		}
		for name, n := range ways {
			if n != 2 {
				t.Errorf("%s/%s has one direction only", engine, name)
			}
		}
		steps[engine] = slices.Sorted(maps.Keys(ways))
	}
	if !slices.Equal(steps[migrations.SQLite], steps[migrations.Postgres]) {
		t.Errorf("the engines have different steps: %v", steps)
	}
}

// TestReleasedStepsStay checks that released steps are unchanged: every change needs a new step. Only the newest step may be
// missing from testdata/released.sha256, the output of sha256sum.
func TestReleasedStepsStay(t *testing.T) {
	released, err := os.ReadFile("testdata/released.sha256")
	harness.Must(t, err)
	for _, engine := range []string{"sqlite", "postgres"} {
		steps := harness.Schemas(t, engine)
		for i, step := range steps {
			text, err := os.ReadFile(step)
			harness.Must(t, err)
			name := engine + "/" + filepath.Base(step)
			line := fmt.Sprintf("%x  %s\n", sha256.Sum256(text), name)
			switch {
			case strings.Contains(string(released), line):
			case strings.Contains(string(released), name):
				t.Errorf("%s has changed since its release: write a new step", name)
			case i < len(steps)-1:
				t.Errorf("testdata/released.sha256 lacks the line %s", line)
			}
		}
	}
}
