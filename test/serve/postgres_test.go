package serve

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestPostgresRefuses starts sqube with databases that it can't use. It never prints the password.
func TestPostgresRefuses(t *testing.T) {
	t.Parallel()
	postgres := harness.NewPostgresServer(t)
	dsn := postgres.DSN()
	const secret = "Open-Sesame"
	for name, c := range map[string]struct {
		change func(*url.URL)
		want   string
	}{
		"wrong password": {
			func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), secret) },
			"check the user and the password in the DSN, or in PGPASSWORD or PGPASSFILE",
		},
		"wrong password in the query": {
			func(u *url.URL) { u.User, u.RawQuery = url.User(u.User.Username()), u.RawQuery+"&password="+secret },
			"check the user and the password in the DSN",
		},
		"no such user": {
			func(u *url.URL) { u.User = url.UserPassword("nobody", secret) },
			"check the user and the password in the DSN",
		},
		"no such database": {
			func(u *url.URL) { u.Path = "/nothing" },
			`database "nothing" does not exist (SQLSTATE 3D000): create it first, or name another in the DSN`,
		},
		"no TLS": {
			func(u *url.URL) { u.RawQuery = "sslmode=require" },
			"does the DSN name the right host, port and sslmode?",
		},
		"wrong port": {
			func(u *url.URL) { u.Host = "127.0.0.1:" + freePort(t) },
			"connection refused: is Postgres running there, and does the DSN name the right host, port and sslmode?",
		},
		"not a DSN": {
			func(u *url.URL) { u.RawQuery = "sslmode=" + secret },
			"the DSN is not valid: want postgres://user:password@host:port/database",
		},
	} {
		t.Run(name, func(t *testing.T) {
			u, err := url.Parse(dsn)
			harness.Must(t, err)
			c.change(u)
			password, _ := u.User.Password()
			refusesOnPostgres(t, u.String(), c.want, secret, password)
		})
	}
	t.Run("wrong escape", func(t *testing.T) {
		refusesOnPostgres(t, "postgres://sqube:"+secret+"%zz@127.0.0.1/sqube", "the DSN is not valid", secret)
	})
	t.Run("slash in the password", func(t *testing.T) {
		refusesOnPostgres(t, "postgres://sqube:12/"+secret+"@127.0.0.1/sqube", "must have / in the password as %2F", secret)
	})
	t.Run("another engine", func(t *testing.T) {
		refusesOnPostgres(t, "mysql://sqube:"+secret+"@127.0.0.1/sqube", "--datastore must be sqlite://PATH or postgres://", secret)
	})
	t.Run("may not make tables", func(t *testing.T) {
		database := postgres.Database(t)
		_, err := harness.OpenDatabase(t, harness.Engine{Datastore: database}).Exec("CREATE ROLE guest LOGIN PASSWORD '" + secret + "'; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
		harness.Must(t, err)
		u, err := url.Parse(database)
		harness.Must(t, err)
		u.User = url.UserPassword("guest", secret)
		refusesOnPostgres(t, u.String(), "permission denied", secret)
	})
	t.Run("is down", func(t *testing.T) {
		harness.Must(t, postgres.Stop())
		refusesOnPostgres(t, dsn, "is Postgres running there", dsn)
	})
}

// refusesOnPostgres checks that serve and migrate fail, and that neither prints a secret.
func refusesOnPostgres(t *testing.T, dsn, want string, secrets ...string) {
	t.Helper()
	for _, args := range [][]string{serveArgs(t, filepath.Join(t.TempDir(), "data"), "-v=10"), {"migrate", "up"}} {
		_, stderr, code := sqube.Run(t, append(args, "--datastore", dsn))
		lines := strings.SplitAfter(strings.TrimSuffix(stderr, "\n"), "\n")
		if err := oneLine(lines[len(lines)-1]+"\n", want); code != 1 || err != nil {
			t.Errorf("%s: code %d, %v:\n%s", args[0], code, err, stderr)
		}
		for _, secret := range secrets {
			if secret != "" && strings.Contains(stderr, secret) {
				t.Errorf("%s tells %q:\n%s", args[0], secret, stderr)
			}
		}
	}
}

// TestPostgresPasswordElsewhere passes the password in ways that keep it out of the process list. On an external server it also
// tests how that authenticates its user.
func TestPostgresPasswordElsewhere(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(harness.Postgres(t))
	harness.Must(t, err)
	password, _ := u.User.Password()
	u.User = url.User(u.User.Username())
	file := filepath.Join(t.TempDir(), "pgpass")
	harness.Must(t, os.WriteFile(file, []byte("*:*:*:*:"+password+"\n"), 0o600))
	dir := filepath.Join(t.TempDir(), "data")
	for _, variable := range []string{"PGPASSWORD=" + password, "PGPASSFILE=" + file} {
		s := serveIn(t, dir, []string{"--datastore", u.String(), "-v=10"}, env(variable))
		settle(t, s)
		s.Stop(t)
		if strings.Contains(s.Stdout(t)+s.Log(t), password) {
			t.Errorf("with %s, the password is printed", variable)
		}
	}
	// A program prints it: for every command that opens the database, itself or with Postgres' programs.
	bare := filepath.Join(t.TempDir(), "bare")
	harness.Must(t, os.WriteFile(bare, []byte(password+"\n"), 0o600))
	by := []string{"--datastore", u.String(), "--datastore-password-command", "cat " + bare}
	s := serveIn(t, dir, by)
	settle(t, s)
	s.Stop(t)
	backup := filepath.Join(t.TempDir(), "backup")
	for _, command := range [][]string{
		{"migrate", "status"}, {"migrate", "up"}, {"check"}, {"check", "--repair"}, {"history", "namespaces/default"}, {"show", "namespaces/default"},
		{"backup", backup}, {"restore", backup, "--force"}, {"restore", u.String() + "&passfile=" + url.QueryEscape(file), "--force"}, {"kubeconfig", "--user", "jane", "--data-dir", dir},
	} {
		stdout, stderr, code := sqube.Run(t, append(command, by...))
		if code != 0 || strings.Contains(stdout+stderr, password) {
			t.Errorf("sqube %s: code %d, %s%s", strings.Join(command, " "), code, stdout, stderr)
		}
	}
	const failing = "--datastore-password-command failed: exit status 1: cat: /nothing: No such file or directory"
	for _, args := range [][]string{serveArgs(t, filepath.Join(t.TempDir(), "data")), {"migrate", "up"}} {
		_, stderr, code := sqube.Run(t, append(args, "--datastore", u.String(), "--datastore-password-command", "cat /nothing"))
		if err := oneLine(stderr, failing); code != 1 || err != nil {
			t.Errorf("with a program that fails, %s ended with code %d, %v:\n%s", args[0], code, err, stderr)
		}
	}
}
