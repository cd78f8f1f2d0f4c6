package harness

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresVariable is the environment variable with the DSN of a Postgres server to test against, such as
// postgres://user:password@host:port/database. Its user must be allowed to create databases. If it is not set, each test
// process starts its own server at first use.
const PostgresVariable = "SQUBE_TEST_POSTGRES"

// databaseTimeout limits the creation and the dropping of one database. They take about 50 ms on an idle machine.
const databaseTimeout = time.Minute

// Postgres returns the DSN of a new, empty database, dropped when the test ends. It is on the server in SQUBE_TEST_POSTGRES, or
// else on one that all tests of this process share. It fails the test if there is none.
func Postgres(t testing.TB) string {
	t.Helper()
	server, err := sharedServer()
	if err != nil {
		t.Fatalf("no Postgres to test on: %v", err)
	}
	return createDatabase(t, server)
}

// sharedServer returns the DSN of the server that the tests of this process share. A server that it starts is stopped when the
// process ends, however that ends.
var sharedServer = sync.OnceValues(func() (string, error) {
	if dsn := os.Getenv(PostgresVariable); dsn != "" {
		return dsn, nil
	}
	server, err := StartPostgres()
	if err != nil {
		return "", err
	}
	return server.DSN(), nil
})

// createDatabase creates an empty database on the same server as the given one, and returns its DSN.
func createDatabase(t testing.TB, server string) string {
	t.Helper()
	name := "sqube_test_" + randomHex(8)
	dsn, err := withDatabase(server, name)
	Must(t, err)
	if err := execute(server, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("creating database %s: %v", name, err)
	}
	t.Cleanup(func() {
		// FORCE ends lingering sessions of killed servers under test.
		if err := execute(server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("dropping database %s: %v", name, err)
		}
	})
	return dsn
}

// withDatabase returns the DSN with its database replaced.
func withDatabase(dsn, database string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return "", fmt.Errorf("%s is not a URL of the form postgres://user:password@host:port/database", PostgresVariable)
	}
	u.Path = "/" + database
	return u.String(), nil
}

// execute runs one statement on its own connection.
func execute(dsn, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), databaseTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	if closeErr := conn.Close(ctx); err == nil {
		err = closeErr
	}
	return err
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails: it crashes the process instead
	return hex.EncodeToString(b)
}
