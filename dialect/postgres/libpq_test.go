package postgres

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestTarget checks that Postgres' programs connect to the same database as sqube, and that secrets are only where other users
// can't see them.
func TestTarget(t *testing.T) {
	for dsn, want := range map[string]target{
		"postgres://u:a%2Fb@h:1/db?sslmode=require&pool_max_conns=3": {"postgres://u@h:1/db?service=sqube", []string{"PGPASSWORD=a/b"}, []string{"sslmode=require"}},
		"postgres://u@h/db?password=a+b%20c&sslpassword=x%3Dy":       {"postgres://u@h/db?service=sqube", []string{"PGPASSWORD=a+b c"}, []string{"sslpassword=x=y"}},
		"postgres:///db?host=/run/pg&user=u&database=e":              {"postgres:///db?service=sqube", nil, []string{"dbname=e", "host=/run/pg", "user=u"}},
		"postgres://h1,h2/db?statement_timeout=90%20s&options=-c%20geqo%3Doff": {"postgres://h1,h2/db?service=sqube", nil,
			[]string{`options=-c geqo=off -c statement_timeout=90\ s`}},
	} {
		got, err := newTarget(dsn)
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		if got.address != want.address || !slices.Equal(got.env, want.env) || !slices.Equal(got.settings, want.settings) {
			t.Errorf("%s: %q", dsn, *got)
		}
		if _, err := pgx.ParseConfig(dsn); err != nil {
			t.Errorf("pgx rejects %s: %v", dsn, err)
		}
	}
	for _, dsn := range []string{"postgres://h/db?sslpassword=secret%0Ahost=evil", "postgres://h/db?sslpassword=%20secret", "host=h password=secret", "postgres://h/db?service=s&sslpassword=secret"} {
		if _, err := newTarget(dsn); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}
