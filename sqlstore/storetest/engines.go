package storetest

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/test/harness"
)

// SQLite is the Opener of a file in a folder of t.
func SQLite(t testing.TB) func(context.Context) (dialect.Engine, error) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	return func(ctx context.Context) (dialect.Engine, error) { return sqlite.Open(ctx, path) }
}

// Postgres is the Opener of a database of t on the test server.
func Postgres(t testing.TB) func(context.Context) (dialect.Engine, error) {
	dsn := harness.Postgres(t)
	if !strings.Contains(dsn, "pool_max_conns") {
		separator := "?"
		if strings.Contains(dsn, "?") {
			separator = "&"
		}
		dsn += separator + "pool_max_conns=4"
	}
	return func(ctx context.Context) (dialect.Engine, error) { return postgres.Open(ctx, dsn) }
}
