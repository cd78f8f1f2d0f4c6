package sqlstore_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/harness"
)

// Any SQL tool can read the views while the log is served. These tests act as such a tool.

func TestViewsSQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	engine, err := sqlite.Open(t.Context(), path)
	harness.Must(t, err)
	testViews(t, engine, "sqlite", path, "json_extract(value, '$.status.phase')", "json_extract(labels, '$.app')", "datetime(written_at)")
}

func TestViewsPostgres(t *testing.T) {
	dsn := harness.Postgres(t)
	engine, err := postgres.Open(t.Context(), dsn)
	harness.Must(t, err)
	testViews(t, engine, "pgx", dsn, "(value->'status'->>'phase')", "(labels->>'app')", "to_char(written_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS')")
}

// testViews takes the expressions that differ between engines: for a field of an object, for a label, and for a time in UTC.
func testViews(t *testing.T, engine dialect.Engine, driver, dsn, phase, app, writtenAt string) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := storetest.Start(t, engine, sqlstore.Options{Now: func() time.Time { return now }})
	write := func(user string, w *sqlstore.Write) *sqlstore.Record {
		w.Resource, w.Namespace, w.Fields = pods, "default", "{}"
		w.Key, w.UID = w.Namespace+"/"+w.Name, "uid-"+w.Name
		if w.Labels == "" {
			w.Labels = "{}"
		}
		revision, err := s.Write(sqlstore.WithAuthor(t.Context(), sqlstore.Author{User: user, FieldManager: user + "-tool"}), w)
		harness.Must(t, err)
		return &sqlstore.Record{Revision: revision, Key: w.Key, Labels: w.Labels, Fields: w.Fields, Value: w.Value}
	}
	a := write("ann", &sqlstore.Write{Operation: dialect.Create, Name: "a", Labels: `{"app":"it's"}`, Value: []byte(`{"kind":"Pod","status":{"phase":"Pending"}}`)})
	a = write("bob", &sqlstore.Write{Operation: dialect.Update, Name: "a", Previous: a, Labels: `{"app":"it's"}`, Value: []byte(`{"kind":"Pod","status":{"phase":"Running"}}`)})
	b := write("ann", &sqlstore.Write{Operation: dialect.Create, Name: "b", Value: []byte(`{"kind":"Pod","status":{}}`)})
	write("eve", &sqlstore.Write{Operation: dialect.Delete, Name: "b", Previous: b})

	db, err := sql.Open(driver, dsn)
	harness.Must(t, err)
	defer db.Close()
	for _, look := range []struct {
		query string
		want  []string
	}{
		{"SELECT name || ' ' || " + phase + " FROM objects WHERE api_group = '' AND resource = 'pods' AND namespace = 'default'", []string{"a Running"}},
		{"SELECT uid || ' ' || user_name || ' ' || field_manager || ' ' || " + writtenAt + " FROM objects", []string{"uid-a bob bob-tool 2026-01-02 03:04:05"}},
		{"SELECT name FROM objects WHERE " + app + " = 'it''s'", []string{"a"}},
		{"SELECT operation || ' ' || name || ' by ' || user_name || ': ' || coalesce(" + phase + ", '-') FROM history", []string{
			"create a by ann: Pending", "update a by bob: Running", "create b by ann: -", "delete b by eve: -",
		}},
		{"SELECT DISTINCT " + writtenAt + " FROM history", []string{"2026-01-02 03:04:05"}},
		{"SELECT h.operation FROM history h JOIN objects o ON o.resource_version = h.resource_version", []string{"update"}},
		{"SELECT before.user_name FROM history after JOIN history before ON before.resource_version = after.replaces WHERE after.operation = 'delete'", []string{"ann"}},
	} {
		var got []string
		rows, err := db.QueryContext(t.Context(), look.query)
		if err != nil {
			t.Errorf("%s: %v", look.query, err)
			continue
		}
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				t.Errorf("%s: %v", look.query, err)
			}
			got = append(got, text)
		}
		if err := rows.Err(); err != nil {
			t.Errorf("%s: %v", look.query, err)
		}
		storetest.Equal(t, look.query, got, look.want)
	}
	if _, _, err := s.Get(t.Context(), pods, a.Key); err != nil {
		t.Errorf("reading disturbs the log: %v", err)
	}
}
