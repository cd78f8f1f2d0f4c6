package harness

import (
	"net/url"
	"testing"
)

// ParseDSN takes apart a DSN, as the function Postgres returns it.
func ParseDSN(t testing.TB, dsn string) *url.URL {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
