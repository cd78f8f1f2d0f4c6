package postgres_test

import (
	"strings"
	"testing"

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
		if err != nil {
			t.Fatal(err)
		}
	}
}
