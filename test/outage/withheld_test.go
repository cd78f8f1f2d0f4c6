package outage

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
)

// TestClientsLearnNothingOfTheDatabase makes the database fail in every way and sends all kinds of requests, as an anonymous
// user, as a user with few permissions and as the administrator. No response reveals the database's address, user or
// statements; the log does.
func TestClientsLearnNothingOfTheDatabase(t *testing.T) {
	t.Parallel()
	// The same schema on both engines, from which something that the server needs is removed.
	const (
		noColumn, column = "ALTER TABLE log RENAME COLUMN value TO content", "ALTER TABLE log RENAME COLUMN content TO value"
		noTable, table   = "ALTER TABLE log RENAME TO elsewhere", "ALTER TABLE elsewhere RENAME TO log"
	)
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		engine := harness.Engine{Name: "sqlite", Datastore: harness.SQLite(t)}
		c := serve(t, engine.Datastore, askAlways)
		w := newWithheld(t, c, regexp.QuoteMeta(strings.TrimPrefix(filepath.Dir(engine.Datastore), "sqlite:"))+`|sqube\.db|sqlite`)
		alter := func(statement string) func() error {
			return func() error {
				_, err := harness.OpenDatabase(t, engine).ExecContext(t.Context(), statement)
				return err
			}
		}
		w.fails(t, "a column is missing", `no such column`, alter(noColumn), alter(column))
		w.fails(t, "the table is missing", `no such table`, alter(noTable), alter(table))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		postgres := harness.NewPostgresServer(t)
		admin := postgres.Database(t)
		u := harness.ParseDSN(t, admin)
		execute(t, admin, "CREATE ROLE keeper LOGIN SUPERUSER PASSWORD 'opensesame'")
		database := strings.Trim(u.Path, "/")
		u.User, u.Host = url.UserPassword("keeper", "opensesame"), net.JoinHostPort("localhost", u.Port())
		c := serve(t, u.String(), "--datastore-timeout", "2s", askAlways)
		w := newWithheld(t, c, `keeper|opensesame|\blocalhost\b|postgres|`+database+`|\b`+u.Port()+`\b|dial tcp|connection refused`)
		alter := func(statement string) func() error {
			return func() error { execute(t, admin, statement); return nil }
		}
		drop := func(statement string) func() error {
			return func() error {
				execute(t, admin, statement)
				execute(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'keeper'")
				return nil
			}
		}
		w.fails(t, "a column is missing", `column .* does not exist`, alter(noColumn), alter(column))
		w.fails(t, "the table is missing", `relation .*log.* does not exist`, alter(noTable), alter(table))
		w.fails(t, "the user may not log in", `role .*keeper.* is not permitted to log in`, drop("ALTER ROLE keeper NOLOGIN"), alter("ALTER ROLE keeper LOGIN"))
		w.fails(t, "it is stopped", regexp.QuoteMeta(database)+`.*connection refused`, postgres.Stop, postgres.Start)
	})
}

// askAlways makes all reads use the database, even those that could do without it.
const askAlways = "--cache-size=0"

// statements matches parts of SQL, drivers and their errors.
const statements = `sqlstate|\bpgx\b|select (count|id|revision|counter)|insert into|relation "|no such (column|table)|column "?\w+"? does not exist|replaced_by|\.go:\d`

// withheld is a server, the token of a user who may read most things, and a pattern of what clients must not see.
type withheld struct {
	*cluster
	anonymous *http.Client // without a client certificate
	token     string
	secret    *regexp.Regexp
	mu        sync.Mutex
	harmless  map[string]bool // lines without it: many are in large documents that hardly change
}

func newWithheld(t *testing.T, c *cluster, secret string) *withheld {
	t.Helper()
	anonymous, err := rest.HTTPClientFor(rest.AnonymousClientConfig(c.Config(t)))
	harness.Must(t, err)
	prepareForms(t, c)
	pattern := regexp.MustCompile(`(?i)` + secret + "|" + statements)
	return &withheld{cluster: c, anonymous: anonymous, token: viewer(t, c), secret: pattern, harmless: map[string]bool{}}
}

// fails runs lose, sends every kind of request and runs recover. logged is a pattern of what the server then logs.
func (w *withheld) fails(t *testing.T, name, logged string, lose, recover func() error) {
	t.Run(name, func(t *testing.T) {
		harness.Must(t, lose())
		var asking sync.WaitGroup
		for _, f := range forms {
			for who, token := range map[string]string{"nobody": "", "a user": w.token, "a stranger": "nonsense", "the administrator": administrator} {
				asking.Go(func() {
					code, head, body := w.send(t, f, token)
					if found := w.reveals(f, head, body); found != "" {
						t.Errorf("%s %s as %s: the response has %q\n%s\n%.2000s", f.method, f.path, who, found, head, body)
					}
					if f.stored && token == administrator && code < 500 {
						t.Errorf("%s %s as %s: got %d, want a server error\n%.2000s", f.method, f.path, who, code, body)
					}
				})
			}
		}
		asking.Wait()
		harness.Eventually(t, "the log has "+logged, func() bool {
			w.send(t, forms[0], administrator) // frequent failures are not all logged
			return regexp.MustCompile(logged).MatchString(w.Log(t))
		})
		harness.Must(t, recover())
		w.WaitReady(t)
		// Events do not reveal it either.
		if _, _, events := w.send(t, form{method: http.MethodGet, path: "/api/v1/events"}, administrator); w.secret.MatchString(events) {
			t.Errorf("events: %s", events)
		}
	})
}

// reveals returns what clients must not see, and "" if a response has nothing of it.
func (w *withheld) reveals(f form, head, body string) string {
	if found := w.secret.FindString(head); found != "" {
		return found
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range strings.Lines(body) {
		if w.harmless[line] {
			continue
		}
		if found := w.secret.FindString(f.visible(line)); found != "" {
			return found
		}
		w.harmless[line] = true
	}
	return ""
}

// administrator stands for the administrator's certificate in place of a token.
const administrator = "administrator"

// send returns the response's status, its headers and its body, in which are errors of the client, too.
func (w *withheld) send(t *testing.T, f form, token string) (code int, head, body string) {
	client := w.anonymous
	if token == administrator {
		client = w.http
	}
	asked, err := http.NewRequestWithContext(t.Context(), f.method, w.URL+f.path, strings.NewReader(f.body))
	if err != nil {
		t.Error(err)
		return 0, "", ""
	}
	if token != "" && token != administrator {
		asked.Header.Set("Authorization", "Bearer "+token)
	}
	asked.Header.Set("Content-Type", "application/json")
	for name, value := range f.headers {
		asked.Header.Set(name, value)
	}
	response, err := client.Do(asked)
	if err != nil {
		return 0, "", err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, fmt.Sprint(response.Status, response.Header, err), string(text)
}
