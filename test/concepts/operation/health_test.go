// Package operation tests sqube against the documentation of running a server: health, audit, priority and fairness.
package operation

import (
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

func TestMain(m *testing.M) { kit.Main(m) }

var healthPaths = []string{"/healthz", "/livez", "/readyz"}

// checks returns the names of the passed checks in a response to ?verbose.
func checks(a kit.Answer) []string {
	var names []string
	for _, line := range regexp.MustCompile(`(?m)^\[\+\](\S+) ok$`).FindAllStringSubmatch(string(a.Body), -1) {
		names = append(names, line[1])
	}
	return names
}

// Reference "Kubernetes API health endpoints".
func TestHealth(t *testing.T) {
	kit.Prove(t, nil,
		kit.Promise{Statement: "a healthy server returns ok", Proof: func(t *testing.T, c *kit.Cluster) {
			for _, path := range healthPaths {
				a := c.Get(t, path).OK(t)
				if string(a.Body) != "ok" || a.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
					t.Errorf("%s returns %q as %s", path, a.Body, a.Header.Get("Content-Type"))
				}
			}
		}},
		kit.Promise{Statement: "?verbose shows every check and the result", Proof: func(t *testing.T, c *kit.Cluster) { // test/surface knows all
			for path, want := range map[string][]string{
				"/healthz": {"ping", "datastore"}, "/livez": {"ping"}, "/readyz": {"ping", "datastore", "informer-sync", "shutdown"},
			} {
				a := c.Get(t, path+"?verbose").OK(t)
				checks := checks(a)
				for _, check := range append(want, "poststarthook/start-kube-aggregator-informers") {
					if !slices.Contains(checks, check) {
						t.Errorf("%s has no check %s:\n%s", path, check, a.Body)
					}
				}
				lines := strings.Split(string(a.Body), "\n")
				if len(lines) != len(checks)+2 || lines[len(checks)] != path[1:]+" check passed" || lines[len(checks)+1] != "" {
					t.Errorf("%s returns\n%s", path, a.Body)
				}
			}
		}},
		kit.Promise{Statement: "every check has its own path", Proof: func(t *testing.T, c *kit.Cluster) {
			for _, path := range healthPaths {
				for _, check := range checks(c.Get(t, path+"?verbose")) {
					if a := c.Get(t, path+"/"+check).OK(t); string(a.Body) != "ok" {
						t.Errorf("%s/%s returns %q", path, check, a.Body)
					}
				}
			}
		}},
		kit.Promise{Statement: "an unknown check has no path", Proof: func(t *testing.T, c *kit.Cluster) {
			for _, path := range healthPaths {
				c.Get(t, path+"/unknown").Want(t, http.StatusNotFound)
			}
		}},
		kit.Promise{Statement: "?exclude skips checks, and may be repeated", Proof: func(t *testing.T, c *kit.Cluster) {
			for _, path := range healthPaths {
				all := checks(c.Get(t, path+"?verbose"))
				a := c.Get(t, path+"?verbose&exclude=ping&exclude=log").OK(t)
				if got := checks(a); len(got) != len(all)-2 || slices.Contains(got, "ping") || slices.Contains(got, "log") {
					t.Errorf("%s has %v", path, got)
				}
				for _, check := range []string{"ping", "log"} {
					if !strings.Contains(string(a.Body), "[+]"+check+" excluded: ok\n") {
						t.Errorf("%s returns\n%s", path, a.Body)
					}
				}
			}
		}},
		kit.Promise{Statement: "excluding an unknown check only causes a warning", Proof: func(t *testing.T, c *kit.Cluster) {
			a := c.Get(t, "/readyz?verbose&exclude=unknown&exclude=other").OK(t)
			if want := `warn: some health checks cannot be excluded: no matches for "other","unknown"`; !strings.Contains(string(a.Body), want) {
				t.Errorf("no %q in\n%s", want, a.Body)
			}
		}},
		kit.Promise{Statement: "all users may read the server's health, but not single checks", Proof: func(t *testing.T, c *kit.Cluster) {
			anyone := kit.NewClient(t, rest.AnonymousClientConfig(c.Config))
			for _, path := range healthPaths {
				anyone.Get(t, path).OK(t)
				anyone.Get(t, path+"?verbose").OK(t)
				anyone.Get(t, path+"/ping").Forbidden(t, path+"/ping")
			}
		}},
		kit.Promise{Statement: "metrics show the results of checks", Proof: func(t *testing.T, c *kit.Cluster) {
			c.Get(t, "/readyz").OK(t)
			slis := string(c.Get(t, "/metrics/slis").OK(t).Body)
			for _, line := range []string{`kubernetes_healthcheck{name="ping",type="readyz"} 1`, `kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} `} {
				if !strings.Contains(slis, line) {
					t.Errorf("no %s in\n%s", line, slis)
				}
			}
		}},
	)
}

// TestHealthOutage stops Postgres. (An SQLite file can't become unavailable in the same way.)
func TestHealthOutage(t *testing.T) {
	t.Parallel()
	postgres := harness.NewPostgresServer(t)
	server := sqube.Start(t, sqube.Options{Datastore: postgres.Database(t)})
	c := kit.NewClient(t, server.Config(t))
	harness.Must(t, postgres.Stop())
	// In /livez, the check etcd passes: restarting the server would not bring the database back.
	harness.Eventually(t, "/readyz fails", func() bool { return c.Get(t, "/readyz").Code == http.StatusInternalServerError })
	for _, path := range []string{"/healthz", "/readyz"} {
		a := c.Get(t, path).Want(t, http.StatusInternalServerError)
		for _, line := range []string{"[-]datastore failed: reason withheld\n", "[-]etcd failed: reason withheld\n", "[+]ping ok\n", "\n" + path[1:] + " check failed\n"} {
			if !strings.Contains(string(a.Body), line) {
				t.Errorf("no %q in the response of %s:\n%s", line, path, a.Body)
			}
		}
		c.Get(t, path+"/ping").OK(t)
		for _, check := range []string{"etcd", "datastore"} {
			a = c.Get(t, path+"/"+check).Want(t, http.StatusInternalServerError)
			if want := "internal server error: the datastore does not answer\n"; string(a.Body) != want {
				t.Errorf("%s/%s returns %q", path, check, a.Body)
			}
		}
	}
	c.Get(t, "/healthz?exclude=datastore").OK(t)
	c.Get(t, "/healthz?exclude=etcd").OK(t)
	c.Get(t, "/readyz?exclude=datastore").OK(t)
	c.Get(t, "/readyz?exclude=etcd&exclude=etcd-readiness").OK(t)
	c.Get(t, "/readyz/etcd-readiness").Want(t, http.StatusInternalServerError)
	c.Get(t, "/livez").OK(t)
	c.Get(t, "/livez/etcd").OK(t)
	harness.Must(t, postgres.Start())
	for _, path := range []string{"/healthz", "/readyz", "/readyz/datastore"} {
		harness.Eventually(t, path+" succeeds again", func() bool { return c.Get(t, path).Code == http.StatusOK })
	}
}

// TestHealthGrace starts servers that can't complete a start hook: a webhook keeps them from recreating a role.
func TestHealthGrace(t *testing.T) {
	kit.OnSQLite(t, func(t *testing.T, engine harness.Engine) {
		dir := t.TempDir()
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, DataDir: dir})
		c := kit.NewClient(t, server.Config(t))
		c.Post(t, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", map[string]any{
			"metadata": map[string]any{"name": "deny"},
			"webhooks": []any{map[string]any{
				"name": "deny.example.com", "sideEffects": "None", "admissionReviewVersions": []string{"v1"},
				"clientConfig": map[string]any{"url": "https://127.0.0.1:1/"},
				"rules": []any{map[string]any{
					"apiGroups": []string{"rbac.authorization.k8s.io"}, "apiVersions": []string{"v1"}, "resources": []string{"clusterroles"}, "operations": []string{"CREATE"},
				}},
			}},
		}).Created(t)
		harness.Eventually(t, "the webhook is in effect", func() bool {
			return c.Post(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All", map[string]any{"metadata": map[string]any{"name": "denied"}}).Code != http.StatusCreated
		})
		c.Delete(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:basic-user").OK(t)
		server.Stop(t)

		const hook = "poststarthook/rbac/bootstrap-roles"
		const failure = "[-]" + hook + " failed: reason withheld\n"
		for grace, code := range map[string]int{"0s": http.StatusInternalServerError, "1h": http.StatusOK} {
			t.Run(grace, func(t *testing.T) {
				c.URL = startUnready(t, engine.Datastore, dir, "--livez-grace-period="+grace)
				a := c.Get(t, "/livez").Want(t, code)
				c.Get(t, "/livez/"+hook).Want(t, code)
				if failed := strings.Contains(string(a.Body), failure); failed != (code != http.StatusOK) {
					t.Errorf("/livez returns\n%s", a.Body)
				}
				if a := c.Get(t, "/readyz").Want(t, http.StatusInternalServerError); !strings.Contains(string(a.Body), failure) {
					t.Errorf("/readyz returns\n%s", a.Body)
				}
			})
		}
	})
}

// startUnready starts a server that does not get ready, waits until it responds, and returns its address. It is stopped when
// the test ends.
func startUnready(t *testing.T, datastore, dir string, args ...string) string {
	t.Helper()
	port := kit.Must(harness.FreePort())(t)
	serve := []string{"serve", "--data-dir", dir, "--datastore", datastore, "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(port)}
	cmd := exec.CommandContext(t.Context(), sqube.Binary(t), append(serve, args...)...)
	harness.Must(t, cmd.Start())
	t.Cleanup(func() { cmd.Wait() }) // killed by the end of the test's context
	url := fmt.Sprintf("https://127.0.0.1:%d", port)
	config := &rest.Config{Host: url, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	client := kit.Must(rest.HTTPClientFor(config))(t)
	harness.Eventually(t, "the server responds", func() bool {
		response, err := client.Get(url + "/livez")
		if err != nil {
			return false
		}
		response.Body.Close()
		return true
	})
	return url
}
