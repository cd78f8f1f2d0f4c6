package datastore

import (
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// FuzzDatastore checks that --datastore leaves a file's path unchanged, and that no output contains a password.
func FuzzDatastore(f *testing.F) {
	for _, flag := range []string{
		"", "sqlite://data/sqube.db", "sqlite:///var/lib/sq%20ube.db", "sqlite://", "sqlite://a%zz", "postgres://sqube:secret@127.0.0.1:5432/sqube?sslmode=disable", "postgresql://h1:1,h2:2/db?password=secret",
		"postgres://user:se%3Acret@host/db", "postgres:///db?host=/run/postgresql&user=u&password=secret", "host=h password=secret", "mysql://u:secret@h/db", "postgres://u:sec/ret@h/db", "postgres://u:se?cret@h/db", "postgres://:0000@/ 000", "postgres://u:12/secret@h/db",
	} {
		f.Add(flag)
	}
	f.Fuzz(func(t *testing.T, flag string) {
		d, err := Parse(flag, "data")
		scheme, rest, _ := strings.Cut(flag, "://")
		switch {
		case err != nil:
			if scheme != "sqlite" && len(flag) > len("postgres://USER:PASSWORD@HOST:PORT/DATABASE") && strings.Contains(err.Error(), flag) {
				t.Errorf("the error repeats the flag: %v", err)
			}
		case flag == "":
			if d.Path != "data/sqube.db" {
				t.Errorf("the default is %q", d.Path)
			}
		case d.Shared():
			if password := passwordOf(flag); len(password) > 3 && strings.Contains(strings.Replace(d.String(), "postgres", "", 1), password) && !publicPart(flag, password) {
				t.Errorf("%q is shown as %q", flag, d)
			}
		default:
			if want, _ := url.PathUnescape(rest); d.Path != want || d.String() != "sqlite://"+want {
				t.Errorf("%q is %q, shown as %q", flag, d.Path, d)
			}
		}
	})
}

// passwordOf returns what the Postgres driver uses as the password.
func passwordOf(dsn string) string {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return ""
	}
	return config.ConnConfig.Password
}

// publicPart reports whether the password also occurs in a part of the DSN that can't contain secrets.
func publicPart(dsn, password string) bool {
	u, err := url.Parse(dsn)
	if err != nil {
		return false
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return strings.Contains(u.String(), password)
}
