package outage

import (
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestPasswordChanges changes the password of the database's user, and then where the server finds it: a password file or what a
// program prints. Until then writes fail and the log says what to do. Afterwards everything goes on: writes, notifications, and queries,
// which have connections of their own.
func TestPasswordChanges(t *testing.T) {
	t.Parallel()
	postgres := harness.NewPostgresServer(t)
	for _, way := range []string{"file", "command"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			admin := postgres.Database(t)
			u := harness.ParseDSN(t, admin)
			user := "owner_by_" + way
			execute(t, admin, "CREATE ROLE "+user+" LOGIN PASSWORD 'first'")
			execute(t, admin, "ALTER DATABASE "+strings.Trim(u.Path, "/")+" OWNER TO "+user)
			u.User = url.User(user)
			secret := filepath.Join(t.TempDir(), "secret")
			options := sqube.Options{Datastore: u.String()}
			prefix := ""
			if way == "file" {
				prefix = "*:*:*:" + user + ":"
				options.Prepare = func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "PGPASSFILE="+secret) }
			} else {
				options.Args = []string{"--datastore-password-command", "cat " + secret}
			}
			write := func(password string) {
				harness.Must(t, os.WriteFile(secret, []byte(prefix+password+"\n"), 0o600))
			}
			write("first")
			c := started(t, options)
			w := c.watch(t)
			c.creates(t, "before")
			execute(t, admin, "ALTER ROLE "+user+" PASSWORD 'second'")
			end := "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '" + user + "'"
			execute(t, admin, end)
			harness.Eventually(t, "a write fails, and the log says what to do", func() bool {
				return c.create(t, "between") != nil &&
					strings.Contains(c.Log(t), "a password file and --datastore-password-command are read for each new connection, but a new DSN or PGPASSWORD needs a restart")
			})
			write("second")
			c.creates(t, "after")
			w.brings(t, "ADDED before", "ADDED after")
			// The connection for notifications is back too.
			harness.Eventually(t, "it listens again", func() bool {
				var listening bool
				err := harness.OpenDatabase(t, harness.Engine{Name: "postgres", Datastore: admin}).QueryRowContext(t.Context(),
					"SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE usename = '"+user+"' AND query = 'LISTEN sqube')").Scan(&listening)
				harness.Must(t, err)
				return listening
			})
			query := request{http.MethodPost, "/apis/history.sqube.io/v1alpha1/queries", `{"apiVersion":"history.sqube.io/v1alpha1","kind":"Query","spec":{"sql":"select count(*) from objects"}}`, ""}
			if response, body, err := c.do(t, query); err != nil || response.StatusCode >= 300 {
				t.Errorf("a query: %v, %v, %s", response, err, body)
			}
		})
	}
}

// TestUnsafeSettings turns off what makes Postgres' commits survive its machine, and on again. The server stays ready, and says so where
// people look.
func TestUnsafeSettings(t *testing.T) {
	t.Parallel()
	postgres := harness.NewPostgresServer(t)
	dsn := postgres.Database(t)
	set := func(value string) {
		for _, name := range []string{"fsync", "full_page_writes"} {
			execute(t, dsn, "ALTER SYSTEM SET "+name+" = "+value)
		}
		execute(t, dsn, "SELECT pg_reload_conf()")
	}
	set("off")
	c := started(t, sqube.Options{Datastore: dsn, Args: []string{"--compact-interval", "100ms"}})
	warned := []string{"acknowledged writes may not survive: the setting fsync of Postgres is off", "acknowledged writes may not survive: the setting full_page_writes of Postgres is off"}
	shown := func(n float64) {
		t.Helper()
		harness.Eventually(t, "/readyz?verbose and the metric show the settings", func() bool {
			response, body, err := c.do(t, request{http.MethodGet, "/readyz?verbose", "", ""})
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("/readyz: %v, %v", response, err)
			}
			matches := 0.0
			for _, sentence := range warned {
				if strings.Contains(string(body), "\n[!]"+sentence) {
					matches++
				}
			}
			return matches == n && sqube.StoreMetrics(t, c)["unsafe_settings"] == n
		})
	}
	shown(2)
	for _, sentence := range warned {
		if n := strings.Count(c.Log(t), sentence); n != 1 {
			t.Errorf("%q is in the log %d times", sentence, n)
		}
	}
	if _, body, err := c.do(t, request{http.MethodGet, "/readyz", "", ""}); err != nil || string(body) != "ok" {
		t.Errorf("/readyz: %s, %v", body, err)
	}
	set("on")
	shown(0)
}
