package harness

import (
	"context"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
)

// ParseDSN parses a DSN returned by Postgres.
func ParseDSN(t testing.TB, dsn string) *url.URL {
	t.Helper()
	u, err := url.Parse(dsn)
	Must(t, err)
	return u
}

// Connect opens a connection to the database at dsn, which is closed when the test ends.
func Connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	Must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) }) // the test may have broken it
	return conn
}
