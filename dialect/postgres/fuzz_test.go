package postgres

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// FuzzParse checks that parse accepts what the driver accepts, changes none of the settings, and leaks no password.
func FuzzParse(f *testing.F) {
	for _, dsn := range []string{
		"postgres://sqube:secret@127.0.0.1:5432/sqube?sslmode=disable", "postgres://h/db?pool_max_conns=3", "postgres://h/pool_max_conns", "host=h user=u password=secret connect_timeout=3",
		"postgres://h1:1,h2:2/db?target_session_attrs=read-write", "postgres://h/db?application_name=x&connect_timeout=0", "postgres://u:p%zz@h", "postgres://u:secret@h:port/db", "=", "postgres://h/db?pool_max_conns=0",
	} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		if strings.Contains(dsn, "file") || strings.Contains(dsn, "ssl") || strings.Contains(dsn, "service") || strings.Contains(dsn, "krb") {
			return // the driver reads files of these names
		}
		want, wantErr := pgxpool.ParseConfig(dsn)
		got, err := Database{DSN: dsn}.parse()
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, but the driver returns %v", dsn, err, wantErr)
		}
		if err != nil {
			if len(dsn) > len("postgres://user:password@host:port/database?sslmode=") && strings.Contains(err.Error(), dsn) {
				t.Errorf("the error repeats the DSN: %v", err)
			}
			return
		}
		own := *want.ConnConfig
		conn := got.ConnConfig
		if conn.Host != own.Host || conn.Port != own.Port || conn.Database != own.Database || conn.User != own.User || conn.Password != own.Password || len(conn.Fallbacks) != len(own.Fallbacks) {
			t.Errorf("%q names %s:%d/%s instead of %s:%d/%s", dsn, conn.Host, conn.Port, conn.Database, own.Host, own.Port, own.Database)
		}
		if own.ConnectTimeout != 0 && conn.ConnectTimeout != own.ConnectTimeout || conn.ConnectTimeout <= 0 {
			t.Errorf("%q: the timeout is %s instead of %s", dsn, conn.ConnectTimeout, own.ConnectTimeout)
		}
		if name := own.RuntimeParams["application_name"]; name != "" && conn.RuntimeParams["application_name"] != name {
			t.Errorf("%q: the application is %q instead of %q", dsn, conn.RuntimeParams["application_name"], name)
		}
		if got.MaxConns != maxConns && got.MaxConns != want.MaxConns {
			t.Errorf("%q: at most %d connections instead of %d", dsn, got.MaxConns, want.MaxConns)
		}
	})
}
