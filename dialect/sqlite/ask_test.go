package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

// TestAskEndsWithItsContext has the context end when SQLite has no statement to interrupt yet: after it has prepared an endless one.
func TestAskEndsWithItsContext(t *testing.T) {
	for name, open := range map[string]func() (*sqlite.Engine, error){
		"file": func() (*sqlite.Engine, error) {
			return sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sqube.db"))
		},
		"memory": func() (*sqlite.Engine, error) { return sqlite.OpenMemory(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			e, err := open()
			harness.Must(t, err)
			defer e.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			prepared := func([]string) {
				cancel()
				time.Sleep(20 * time.Millisecond) // what it interrupts is nothing
			}
			err = e.Ask(ctx, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n", prepared, nil)
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// ask returns the rows of a statement, with their values as text.
func ask(t *testing.T, e *sqlite.Engine, statement string) (rows [][]string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = e.Ask(ctx, statement, func([]string) {}, func(row []any) error {
		var texts []string
		for _, value := range row {
			texts = append(texts, fmt.Sprintf("%v", value))
		}
		rows = append(rows, texts)
		return nil
	})
	return rows, err
}

// TestAskReadsOnlyTheLog asks for what is in the file besides the log, in each way that this SQLite knows: whatever a later one adds is refused, too.
func TestAskReadsOnlyTheLog(t *testing.T) {
	e := opened(t, filepath.Join(t.TempDir(), "sqube.db"))
	defer e.Close()
	refused := func(statement string) {
		t.Helper()
		if rows, err := ask(t, e, statement); err == nil || errors.Is(err, dialect.ErrUnavailable) {
			t.Errorf("%s: %v, %v", statement, rows, err)
		}
	}
	list := func(statement string) []string {
		return strings.Split(text(t, e, "SELECT group_concat(DISTINCT name) FROM ("+statement+")"), ",")
	}
	tables := append(list("SELECT name FROM pragma_module_list UNION SELECT name FROM sqlite_master WHERE type IN ('table', 'view') UNION SELECT 'pragma_' || name FROM pragma_pragma_list"),
		"sqlite_master", "sqlite_schema", "main.sqlite_schema", "sqlite_temp_schema", "schema_migrations", "pragma_table_info('log')", "pragma_integrity_check")
	for _, table := range tables {
		if !strings.Contains(" objects history log past counter json_each json_tree ", " "+table+" ") {
			refused("SELECT * FROM " + table)
			refused("SELECT count(*) FROM " + table)
			refused("WITH x AS (SELECT rowid FROM " + table + ") SELECT count(*) FROM x")
		}
	}
	for _, name := range list("SELECT name FROM pragma_function_list WHERE flags & 0x200000 = 0 OR name GLOB 'fts*' OR name GLOB 'geopoly*' OR name GLOB 'rtree*'") {
		refused("SELECT " + name + "()")
		refused("SELECT " + name + "('x')")
		refused("SELECT " + name + "('x', 'y')")
	}
	for _, statement := range []string{"SELECT load_extension('x')", "SELECT unhex('00', 'x')", "SELECT json_patch('{}', '{}')"} {
		refused(statement)
	}
	for statement, want := range map[string]string{
		"WITH n AS (SELECT 1 AS one), m AS (SELECT * FROM n) SELECT count(*) FROM n, m":                             "[[1]]",
		"SELECT count(*) FROM objects, history, log, past, counter":                                                 "[[0]]",
		"SELECT max(revision) > 0 FROM counter":                                                                     "[[1]]",
		"SELECT count(*) FROM (SELECT * FROM log WHERE name IN (SELECT name FROM objects))":                         "[[0]]",
		"SELECT key, value FROM json_each('{\"a\": 1}') UNION SELECT key, atom FROM json_tree('[2]') WHERE key = 0": "[[0 2] [a 1]]",
		"SELECT row_number() OVER (ORDER BY i), upper('a') LIKE 'A', 'x' || 1 FROM (SELECT 1 AS i)":                 "[[1 1 x1]]",
	} {
		if rows, err := ask(t, e, statement); err != nil || fmt.Sprint(rows) != want {
			t.Errorf("%s: %v, %v", statement, rows, err)
		}
	}
}

// TestAskReplacesFunctions compares the functions that are replaced with SQLite's.
func TestAskReplacesFunctions(t *testing.T) {
	e := opened(t, filepath.Join(t.TempDir(), "sqube.db"))
	defer e.Close()
	own, err := sql.Open("sqlite", ":memory:")
	harness.Must(t, err)
	defer own.Close()
	values := []string{"NULL", "''", "'a'", "'ab'", "'baab'", "'ä€a'", "'€'", "' a '", "x'6162'", "x'62'", "12", "1.5", "'äb'"}
	for _, x := range values {
		for _, call := range []string{"trim(%s)", "ltrim(%s)", "rtrim(%s)", "instr(%s, ?)", "trim(%s, ?)", "ltrim(%s, ?)", "rtrim(%s, ?)", "replace(%s, ?, 'zz')", "replace('baab', %s, ?)"} {
			for _, y := range values {
				statement := "SELECT quote(" + strings.Replace(fmt.Sprintf(call, x), "?", y, 1) + ")"
				var want string
				harness.Must(t, own.QueryRowContext(t.Context(), statement).Scan(&want))
				if rows, err := ask(t, e, statement); err != nil || fmt.Sprint(rows) != "[["+want+"]]" {
					t.Errorf("%s is %v, %v; want %s", statement, rows, err, want)
				}
			}
		}
	}
}

// TestAskIsBounded asks for what would take gigabytes of memory or of files, or hours.
func TestAskIsBounded(t *testing.T) {
	e := opened(t, filepath.Join(t.TempDir(), "sqube.db"))
	defer e.Close()
	defer sqlite.LimitTemporary(16 << 20)()
	columns := strings.TrimSuffix(strings.Repeat("hex(randomblob(4000000)), ", 100), ", ")
	for name, c := range map[string][2]string{
		"columns":           {"SELECT " + columns, "more than 64 MiB of memory"},
		"more columns":      {"SELECT " + strings.TrimSuffix(strings.Repeat("1, ", 101), ", "), "too many columns"},
		"a row":             {"SELECT hex(zeroblob(2000000)), hex(zeroblob(2000000)), hex(zeroblob(2000000))", "a row has more than 8 MiB"},
		"arguments":         {"SELECT length(max(" + strings.TrimSuffix(strings.Repeat("hex(randomblob(4000000)), ", 100), ", ") + "))", "more than 64 MiB of memory"},
		"a value":           {"SELECT length(zeroblob(100000000))", "too big"},
		"a replaced value":  {"SELECT length(replace(hex(zeroblob(4000000)), '0', '00'))", "too big"},
		"a pattern":         {"SELECT 'x' LIKE hex(zeroblob(200))", "too complex"},
		"temporary files":   {"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n ORDER BY randomblob(100000)", "of temporary files"},
		"a temporary table": {"WITH RECURSIVE n(i, x) AS (SELECT 1, x'' UNION SELECT i + 1, randomblob(100000) FROM n) SELECT count(*) FROM n", "of temporary files"},
	} {
		t.Run(name, func(t *testing.T) {
			rows, err := ask(t, e, c[0])
			if err == nil || !strings.Contains(err.Error(), c[1]) || errors.Is(err, dialect.ErrUnavailable) {
				t.Errorf("%v, %v", len(rows), err)
			}
		})
	}
	for _, quick := range []string{
		"SELECT instr(hex(zeroblob(4000000)), hex(zeroblob(2000000)) || '1')", "SELECT length(replace(hex(zeroblob(4000000)), hex(zeroblob(2000000)) || '1', ''))",
	} {
		if rows, err := ask(t, e, quick); err != nil || len(rows) != 1 {
			t.Errorf("%s: %v, %v", quick, rows, err)
		}
	}
	runtime.GC()
	if rows, err := ask(t, e, "SELECT count(*) FROM log"); err != nil || fmt.Sprint(rows) != "[[0]]" {
		t.Errorf("afterwards: %v, %v", rows, err)
	}
}
