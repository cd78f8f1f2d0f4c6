package harness

import (
	"net/url"
	"testing"
)

// ParseDSN parses a DSN returned by Postgres.
func ParseDSN(t testing.TB, dsn string) *url.URL {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
