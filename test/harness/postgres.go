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

// PostgresVariable names the environment variable that holds the DSN of a Postgres server to test against, as
// postgres://user:password@host:port/database. Its user must be allowed to create databases. When it is not set, each
// test process starts a server of its own at first use.
const PostgresVariable = "SQUBE_TEST_POSTGRES"

// databaseTimeout bounds the creation and the dropping of one database. They take some 50 ms on an idle machine.
const databaseTimeout = time.Minute

// Postgres returns the DSN of a fresh, empty database, dropped when the test ends. It is on the server that
// SQUBE_TEST_POSTGRES names, or else on one that all tests of this process share. It fails the test when there is none.
func Postgres(t testing.TB) string {
	t.Helper()
	server, err := sharedServer()
	if err != nil {
		t.Fatalf("no Postgres to test on: %v", err)
	}
	return createDatabase(t, server)
}

// sharedServer returns the DSN of the server that the tests of this process share. A server that it starts ends with
// the process, however that ends.
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

// createDatabase makes an empty database beside the one that the DSN names, and returns the DSN of the new one.
func createDatabase(t testing.TB, server string) string {
	t.Helper()
	name := "sqube_test_" + randomHex(8)
	dsn, err := withDatabase(server, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := execute(server, "CREATE DATABASE "+name); err != nil {
		t.Fatalf("create database %s: %v", name, err)
	}
	t.Cleanup(func() {
		// FORCE ends the connections of servers under test that were killed and whose sessions linger.
		if err := execute(server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("drop database %s: %v", name, err)
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

// execute runs one statement on a connection of its own.
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
	rand.Read(b) // never fails: it ends the process instead
	return hex.EncodeToString(b)
}
