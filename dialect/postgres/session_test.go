package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/test/harness"
)

// TestReadOnlyServerIsRefused opens a database that accepts no writes.
func TestReadOnlyServerIsRefused(t *testing.T) {
	_, err := postgres.Open(t.Context(), withParameter(t, harness.Postgres(t), "default_transaction_read_only", "on"))
	if err == nil || !strings.Contains(err.Error(), "name the primary in the DSN, or all hosts") {
		t.Errorf("open: %v", err)
	}
}

// TestEncodings opens a database in an encoding that has all characters, and one in another.
func TestEncodings(t *testing.T) {
	admin := open(t, harness.Postgres(t))
	for encoding, usable := range map[string]bool{"UTF8": true, "LATIN1": false} {
		name := "encoded_" + strings.ToLower(encoding)
		harness.Must(t, admin.Exec(t.Context(), "CREATE DATABASE "+name+" TEMPLATE template0 LOCALE 'C' ENCODING '"+encoding+"'"))
		t.Cleanup(func() {
			if err := admin.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
				t.Error(err)
			}
		})
		e, err := postgres.Open(t.Context(), inDatabase(t, harness.Postgres(t), name))
		if err == nil {
			err = e.Close()
		}
		if usable != (err == nil) || err != nil && !strings.Contains(err.Error(), "create it with ENCODING 'UTF8'") {
			t.Errorf("%s: %v", encoding, err)
		}
	}
}

// inDatabase returns the DSN of another database of the server.
func inDatabase(t *testing.T, dsn, name string) string {
	t.Helper()
	u := harness.ParseDSN(t, dsn)
	u.Path = "/" + name
	return u.String()
}

// TestSessionsEndWithTheirClient checks that a session has sqube's settings, except those set in the DSN.
func TestSessionsEndWithTheirClient(t *testing.T) {
	e := open(t, withParameter(t, harness.Postgres(t), "tcp_keepalives_idle", "7"))
	for name, want := range map[string]string{
		"idle_in_transaction_session_timeout": "5min",
		"client_connection_check_interval":    "5s",
		"tcp_keepalives_idle":                 "7",
		"tcp_keepalives_count":                "3",
	} {
		err := e.Query(t.Context(), "SELECT current_setting($1)", []any{name}, func(row dialect.Row) error {
			var got string
			if err := row.Scan(&got); err != nil {
				return err
			}
			if got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
			return nil
		})
		harness.Must(t, err)
	}
}

// TestConnectionsThatHang has all new connections wait for a lock. They are given up, and so leave their places in the pool.
func TestConnectionsThatHang(t *testing.T) {
	dsn := harness.Postgres(t)
	e := open(t, withParameter(t, dsn, "connect_timeout", "1"))
	other := harness.Connect(t, dsn)
	if _, err := other.Exec(t.Context(), `BEGIN; LOCK TABLE counter IN ACCESS EXCLUSIVE MODE;
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := e.Query(ctx, "SELECT 1", nil, func(dialect.Row) error { return nil })
	if !errors.Is(err, dialect.ErrUnavailable) || ctx.Err() != nil {
		t.Errorf("a read: %v", err)
	}
}

// TestMigrationsStayLocked has a step of the schema wait for another session, for longer than a transaction may be idle. Until
// the step ends, no other process may begin to migrate.
func TestMigrationsStayLocked(t *testing.T) {
	dsn := harness.Postgres(t)
	e := open(t, dsn)
	harness.Must(t, e.Exec(t.Context(), "UPDATE schema_migrations SET version = 1"))
	other := harness.Connect(t, dsn)
	if _, err := other.Exec(t.Context(), "BEGIN; LOCK TABLE log IN SHARE UPDATE EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	migrated := make(chan error, 1)
	go func() {
		_, err := postgres.Migrate(t.Context(), postgres.Database{DSN: withParameter(t, dsn, "idle_in_transaction_session_timeout", "700")})
		migrated <- err
	}()
	// Until a step has waited for longer than the timeout, or the lock is lost.
	const waited = `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE relation = 'log'::regclass AND NOT granted)
AND coalesce(min(clock_timestamp() - a.state_change) > '1s', true) FROM pg_stat_activity a JOIN pg_locks l USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND a.datname = current_database()`
	for over := false; !over; time.Sleep(10 * time.Millisecond) {
		harness.Must(t, e.Query(t.Context(), waited, nil, func(row dialect.Row) error { return row.Scan(&over) }))
	}
	var locks int
	if err := other.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&locks); err != nil {
		t.Fatal(err)
	}
	if locks != 1 {
		t.Errorf("%d sessions hold the lock of migrations while a step waits, want 1", locks)
	}
	if _, err := other.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Error(err)
	}
}
