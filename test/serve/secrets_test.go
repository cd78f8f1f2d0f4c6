package serve

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestSecretsOfADSN passes passwords in every part of a DSN that may have one, to every command: none of them is in the
// arguments of a process other than sqube itself, or in any output.
func TestSecretsOfADSN(t *testing.T) {
	t.Parallel()
	server := harness.NewPostgresServer(t)
	u := harness.ParseDSN(t, server.Database(t))
	password, _ := u.User.Password()
	other := "Open-Sesame-of-" + u.Port() // unlike in another run of this test at the same time
	query := u.Query()
	query.Set("password", password)
	query.Set("sslpassword", other)
	query.Set("pool_max_conns", "4")
	query.Set("statement_timeout", "90 s") // a parameter of the session
	u.User, u.RawQuery = url.User(u.User.Username()), strings.ReplaceAll(query.Encode(), "+", "%20")
	dsn := u.String()
	database := []string{"--datastore", dsn}

	// Postgres' programs, wrapped to record all processes first.
	dir, seen := t.TempDir(), t.TempDir()
	for _, name := range []string{"pg_dump", "pg_restore", "psql"} {
		program, err := exec.LookPath(name)
		harness.Must(t, err)
		const script = `#!/bin/sh
tail -n +1 /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' >SEEN/$$
if [ -n "$BROKEN" ]; then echo "cannot read $PGSERVICEFILE" >&2; exit 1; fi
exec PROGRAM "$@"
`
		text := strings.NewReplacer("SEEN", seen, "PROGRAM", program).Replace(script)
		harness.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
	}
	path := env("PATH=" + dir + ":" + os.Getenv("PATH"))

	keepsSecrets := func(what, text string) {
		t.Helper()
		for _, secret := range []string{password, url.QueryEscape(password), other} {
			if strings.Contains(text, secret) {
				t.Errorf("%s: %q is in\n%s", what, secret, text)
			}
		}
	}
	plays := func(want int, args []string, options ...option) {
		t.Helper()
		stdout, stderr, code := sqube.Run(t, args, append(options, path)...)
		if code != want {
			t.Errorf("sqube %s ended with code %d and wrote\n%s%s", args[0], code, stdout, stderr)
		}
		keepsSecrets(args[0], stdout+stderr)
	}
	backup := filepath.Join(dir, "backup")
	s := serve(t, append([]string{"-v=10"}, database...))
	settle(t, s)
	plays(0, append([]string{"backup", backup}, database...))
	plays(0, append([]string{"check"}, database...))
	plays(0, append([]string{"history", "services", "kubernetes"}, database...))
	plays(0, []string{"restore", dsn, "--datastore", "sqlite://" + filepath.Join(dir, "other.db")})
	plays(1, append([]string{"restore", backup, "--force"}, database...))
	s.Stop(t)
	keepsSecrets("serve", s.Stdout(t)+s.Log(t))
	if !strings.Contains(s.Stdout(t), "postgres://"+u.Host+u.Path) {
		t.Errorf("the server does not print its database, only\n%s", s.Stdout(t))
	}
	plays(0, append([]string{"restore", backup, "--force"}, database...))
	plays(0, append([]string{"restore", dsn, "--force"}, database...))
	plays(0, append([]string{"migrate", "status"}, database...))
	if text := succeeds(t, append([]string{"check"}, database...)); !strings.Contains(text, "nothing wrong") {
		t.Error(text)
	}
	harness.Must(t, os.Remove(backup))
	plays(1, append([]string{"backup", backup}, database...), env("BROKEN=1"))
	text := ""
	for _, content := range contents(t, seen) {
		text += string(content)
	}
	found := false
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, sqube.Binary(t)) { // which got the DSN itself
			keepsSecrets("arguments", line)
			found = found || strings.Contains(line, "--dbname=postgres://"+u.User.Username()+"@"+u.Host+u.Path)
		}
	}
	if !found {
		t.Errorf("the programs are not among\n%s", text)
	}
	path = env("PATH=/nowhere")
	plays(1, append([]string{"backup", backup}, database...))

	// Malformed DSNs are not printed either.
	wrong := func(change func(*url.URL)) string {
		u := *u
		change(&u)
		return u.String()
	}
	for i, dsn := range []string{
		wrong(func(u *url.URL) { u.RawQuery += "&sslmode=" + other }),
		wrong(func(u *url.URL) { u.RawQuery += "&port=" + other }),
		wrong(func(u *url.URL) { u.Path = "/nothing" }),
		wrong(func(u *url.URL) { u.Host = "127.0.0.1:" + freePort(t) }),
		wrong(func(u *url.URL) { u.Scheme = "postgre" }),
		"postgres:/" + u.Host + "@" + password,
		"host=127.0.0.1 password=" + password,
		"postgres://sqube:" + password + "%zz@127.0.0.1/sqube",
	} {
		for _, args := range [][]string{
			{"backup", backup, "--datastore", dsn},
			{"restore", dsn, "--datastore", "sqlite://" + filepath.Join(dir, "none.db")},
			{"import", "--from", "kine-postgres", dsn, "--data-dir", dir, "--dry-run"},
			{"import", "--from", []string{"kine-sqlite", "etcd"}[i%2], dsn, "--data-dir", dir, "--dry-run"},
		} {
			plays(1, args)
		}
	}
	plays(1, []string{"import", "--from", "etcd", "http://root:" + password + "@127.0.0.1:" + freePort(t), "--data-dir", dir, "--dry-run"})
}
