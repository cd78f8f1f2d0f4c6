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
	"sync"
	"testing"

	"github.com/sqube/sqube/migrations"
	"github.com/sqube/sqube/test/harness"
)

// up brings a database's schema up to date. It opens it anew, since Up closes what it is given on Postgres.
func up(t *testing.T, engine harness.Engine) migrations.Status {
	t.Helper()
	before, err := migrations.Up(t.Context(), harness.OpenDatabase(t, engine), migrations.Engine(engine.Name))
	if err != nil {
		t.Fatal(err)
	}
	return before
}

func read(t *testing.T, engine harness.Engine) migrations.Status {
	t.Helper()
	status, err := migrations.Read(t.Context(), harness.OpenDatabase(t, engine), migrations.Engine(engine.Name))
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func execute(t *testing.T, db *sql.DB, statements string) {
	t.Helper()
	if _, err := db.Exec(statements); err != nil {
		t.Fatalf("%s: %v", statements, err)
	}
}

// contents returns what is in the log and in its views, a line for each row.
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
		if err != nil {
			t.Fatal(err)
		}
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

func TestUpFromEmptyAndAgain(t *testing.T) {
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		if status := read(t, engine); status.Current != 0 || status.Newest == 0 || status.Interrupted {
			t.Errorf("an empty database stands at %+v", status)
		}
		if before := up(t, engine); before.Current != 0 {
			t.Errorf("before the first Up it stood at %+v", before)
		}
		if before := up(t, engine); before.Usable() != nil {
			t.Errorf("before the second Up it stood at %+v", before)
		}
	})
}

// TestUpFromEachSchema takes what servers have left, at each version of the schema, to the newest one, also where power was
// lost at a step: that is taken again, since it is not known whether it happened. No row changes.
func TestUpFromEachSchema(t *testing.T) {
	newest := len(harness.Schemas(t, "sqlite"))
	for version := 1; version <= newest; version++ {
		left := map[string]string{
			"whole":                   "",
			"its step not told ended": "UPDATE schema_migrations SET dirty = true",
		}
		if version < newest {
			left["the next step begun"] = "UPDATE schema_migrations SET version = version + 1, dirty = true"
		}
		if version == 1 {
			left["its step cut off"] = "DROP VIEW history; DROP INDEX log_expires; UPDATE schema_migrations SET dirty = true"
		}
		for how, statements := range left {
			t.Run(fmt.Sprintf("schema %d, %s", version, how), func(t *testing.T) {
				harness.Engines(t, func(t *testing.T, engine harness.Engine) {
					db := harness.LaySchema(t, engine, version)
					want := contents(t, db)
					execute(t, db, statements)
					if before := up(t, engine); before.Interrupted != (how != "whole") || before.Newest != uint(newest) {
						t.Errorf("before Up it stood at %+v", before)
					}
					if status := read(t, engine); status.Usable() != nil {
						t.Errorf("after Up it stands at %+v", status)
					}
					if got := contents(t, db); got != want {
						t.Errorf("the rows are\n%s\nthey were\n%s", got, want)
					}
				})
			})
		}
	}
}

// TestFailedStep has a table of somebody else's in the way of the first step.
func TestFailedStep(t *testing.T) {
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		db := harness.OpenDatabase(t, engine)
		execute(t, db, "CREATE TABLE log (line text)")
		_, err := migrations.Up(t.Context(), harness.OpenDatabase(t, engine), migrations.Engine(engine.Name))
		if err == nil || !strings.HasPrefix(err.Error(), "step 1 of the schema failed, nothing was changed, ") || strings.Contains(err.Error(), "CREATE TABLE") {
			t.Errorf("a step that fails is told as %v", err)
		}
		if status := read(t, engine); status.Usable() == nil {
			t.Errorf("after it failed it stands at %+v", status)
		}
		execute(t, db, "DROP TABLE log")
		up(t, engine)
		if status := read(t, engine); status.Usable() != nil {
			t.Errorf("taken again, it stands at %+v", status)
		}
	})
}

func TestNewerDatabaseIsLeftAlone(t *testing.T) {
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		up(t, engine)
		db := harness.OpenDatabase(t, engine)
		execute(t, db, "UPDATE schema_migrations SET version = 9999")
		if _, err := migrations.Up(t.Context(), harness.OpenDatabase(t, engine), migrations.Engine(engine.Name)); !errors.Is(err, migrations.ErrNewer) {
			t.Errorf("Up of a newer database: %v", err)
		}
		if status := read(t, engine); status.Current != 9999 || status.Interrupted || !errors.Is(status.Usable(), migrations.ErrNewer) {
			t.Errorf("a newer database stands at %+v", status)
		}
	})
}

// TestAutovacuum looks at what the second step sets on Postgres.
func TestAutovacuum(t *testing.T) {
	engine := harness.Engine{Name: "postgres", Datastore: harness.Postgres(t)}
	db := harness.LaySchema(t, engine, 1)
	up(t, engine)
	var tables int
	if err := db.QueryRow(`SELECT count(*) FROM pg_class c LEFT JOIN pg_class toast ON toast.oid = c.reltoastrelid
WHERE c.relname = 'log' AND c.reloptions @> '{autovacuum_vacuum_scale_factor=0.01,autovacuum_vacuum_cost_delay=0}'
   AND toast.reloptions @> '{autovacuum_vacuum_scale_factor=0.01,autovacuum_vacuum_cost_delay=0}'
   OR c.relname = 'counter' AND c.reloptions @> '{fillfactor=10,autovacuum_vacuum_scale_factor=0,autovacuum_vacuum_cost_delay=0}'`).Scan(&tables); err != nil || tables != 2 {
		t.Errorf("the settings are those of %d tables, not of 2: %v", tables, err)
	}
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
			if found[i], err = migrations.Up(t.Context(), db, migrations.Postgres); err != nil {
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

// TestReleasedStepsStay holds the steps that databases have taken to what they were: a change is a step of its own. Only the
// newest may be missing from testdata/released.sha256, which is as sha256sum writes it.
func TestReleasedStepsStay(t *testing.T) {
	released, err := os.ReadFile("testdata/released.sha256")
	if err != nil {
		t.Fatal(err)
	}
	for _, engine := range []string{"sqlite", "postgres"} {
		steps := harness.Schemas(t, engine)
		for i, step := range steps {
			text, err := os.ReadFile(step)
			if err != nil {
				t.Fatal(err)
			}
			name := engine + "/" + filepath.Base(step)
			isNew := i == len(steps)-1 && !strings.Contains(string(released), name)
			if line := fmt.Sprintf("%x  %s\n", sha256.Sum256(text), name); !isNew && !strings.Contains(string(released), line) {
				t.Errorf("%s is not what it was when it was released: write a new step", name)
			}
		}
	}
}
