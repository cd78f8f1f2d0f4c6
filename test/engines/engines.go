// Package engines opens logs for tests on each database engine. It is here so
// that only sqube's command imports the engines.
package engines

import (
	"context"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/sqlstore/storetest"
	"github.com/sqube/sqube/test/harness"
)

// SQLite opens a file in a temporary folder of t.
var SQLite storetest.Opener = func(t testing.TB) func(context.Context) (dialect.Engine, error) {
	path := filepath.Join(t.TempDir(), "sqube.db")
	return func(ctx context.Context) (dialect.Engine, error) { return sqlite.Open(ctx, path) }
}

// PostgresCluster opens the log of a cluster in a database of the test server.
var PostgresCluster storetest.Opener = func(t testing.TB) func(context.Context) (dialect.Engine, error) {
	dsn, err := url.Parse(harness.Postgres(t))
	harness.Must(t, err)
	host, err := postgres.OpenHost(t.Context(), postgres.Database{DSN: dsn.String()}, 0)
	harness.Must(t, err)
	t.Cleanup(func() { harness.Must(t, host.Close()) })
	const id = "cluster"
	harness.Must(t, host.Make(t.Context(), id, "", func(*postgres.Engine) error { return nil }))
	return func(ctx context.Context) (dialect.Engine, error) {
		if _, _, err := host.Acquire(ctx, id); err != nil {
			return nil, err
		}
		return host.Open(id)
	}
}

// connections is the maximum per log. Tests run many logs on one server.
const connections = "4"

// Postgres opens a database for t on the test server.
var Postgres storetest.Opener = func(t testing.TB) func(context.Context) (dialect.Engine, error) {
	dsn, err := url.Parse(harness.Postgres(t))
	harness.Must(t, err)
	parameters := dsn.Query()
	parameters.Set("pool_max_conns", connections)
	dsn.RawQuery = parameters.Encode()
	return func(ctx context.Context) (dialect.Engine, error) { return postgres.Open(ctx, dsn.String()) }
}
