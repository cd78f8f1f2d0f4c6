package concepts

import (
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

var healthPaths = []string{"/healthz", "/livez", "/readyz"}

// checks are the names of the checks in an answer to ?verbose, those that passed.
func (a answer) checks() []string {
	var names []string
	for _, line := range regexp.MustCompile(`(?m)^\[\+\](\S+) ok$`).FindAllStringSubmatch(string(a.Body), -1) {
		names = append(names, line[1])
	}
	return names
}

// startedChecks are those of a kube-apiserver v1.36 in /healthz and /livez, but for that of a certificate which there is not.
var startedChecks = []string{
	"ping", "log", "etcd", "autoregister-completion",
	"poststarthook/aggregator-reload-proxy-client-cert",
	"poststarthook/apiservice-discovery-controller",
	"poststarthook/apiservice-openapi-controller",
	"poststarthook/apiservice-openapiv3-controller",
	"poststarthook/apiservice-registration-controller",
	"poststarthook/apiservice-status-local-available-controller",
	"poststarthook/apiservice-status-remote-available-controller",
	"poststarthook/bootstrap-controller",
	"poststarthook/crd-informer-synced",
	"poststarthook/generic-apiserver-start-informers",
	"poststarthook/kube-apiserver-autoregistration",
	"poststarthook/priority-and-fairness-config-consumer",
	"poststarthook/priority-and-fairness-config-producer",
	"poststarthook/priority-and-fairness-filter",
	"poststarthook/rbac/bootstrap-roles",
	"poststarthook/scheduling/bootstrap-system-priority-classes",
	"poststarthook/start-apiextensions-controllers",
	"poststarthook/start-apiextensions-informers",
	"poststarthook/start-apiserver-admission-initializer",
	"poststarthook/start-cluster-authentication-info-controller",
	"poststarthook/start-kube-aggregator-informers",
	"poststarthook/start-kube-apiserver-identity-lease-controller",
	"poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
	"poststarthook/start-kubernetes-service-cidr-controller",
	"poststarthook/start-legacy-token-tracking-controller",
	"poststarthook/start-service-ip-repair-controllers",
	"poststarthook/start-system-namespaces-controller",
	"poststarthook/storage-object-count-tracker-hook",
	"poststarthook/storage-readiness",
}

// Reference "Kubernetes API health endpoints".
func TestHealth(t *testing.T) {
	prove(t, nil,
		promise{"a server that is well answers ok", func(t *testing.T, c *cluster) {
			for _, path := range healthPaths {
				a := c.get(t, path).want(t, http.StatusOK)
				if string(a.Body) != "ok" || a.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
					t.Errorf("%s answers %q as %s", path, a.Body, a.Header.Get("Content-Type"))
				}
			}
		}},
		promise{"?verbose tells every check and the sum", func(t *testing.T, c *cluster) {
			for path, want := range map[string][]string{
				"/healthz": startedChecks,
				"/livez":   startedChecks,
				"/readyz":  append([]string{"etcd-readiness", "informer-sync", "shutdown"}, startedChecks...),
			} {
				a := c.get(t, path+"?verbose").want(t, http.StatusOK)
				checks := a.checks()
				for _, check := range want {
					if !slices.Contains(checks, check) {
						t.Errorf("%s has no check %s:\n%s", path, check, a.Body)
					}
				}
				lines := strings.Split(string(a.Body), "\n")
				if len(lines) != len(checks)+2 || lines[len(checks)] != path[1:]+" check passed" || lines[len(checks)+1] != "" {
					t.Errorf("%s answers\n%s", path, a.Body)
				}
			}
		}},
		promise{"every check has a path of its own", func(t *testing.T, c *cluster) {
			for _, path := range healthPaths {
				for _, check := range c.get(t, path+"?verbose").checks() {
					if a := c.get(t, path+"/"+check).want(t, http.StatusOK); string(a.Body) != "ok" {
						t.Errorf("%s/%s answers %q", path, check, a.Body)
					}
				}
			}
		}},
		promise{"a check that there is not has no path", func(t *testing.T, c *cluster) {
			for _, path := range healthPaths {
				c.get(t, path+"/unknown").want(t, http.StatusNotFound)
			}
		}},
		promise{"?exclude leaves checks out, as often as it is given", func(t *testing.T, c *cluster) {
			for _, path := range healthPaths {
				all := c.get(t, path+"?verbose").checks()
				a := c.get(t, path+"?verbose&exclude=ping&exclude=log").want(t, http.StatusOK)
				if got := a.checks(); len(got) != len(all)-2 || slices.Contains(got, "ping") || slices.Contains(got, "log") {
					t.Errorf("%s has %v", path, got)
				}
				for _, check := range []string{"ping", "log"} {
					if !strings.Contains(string(a.Body), "[+]"+check+" excluded: ok\n") {
						t.Errorf("%s answers\n%s", path, a.Body)
					}
				}
			}
		}},
		promise{"an unknown check to exclude is told, and does no harm", func(t *testing.T, c *cluster) {
			a := c.get(t, "/readyz?verbose&exclude=unknown&exclude=other").want(t, http.StatusOK)
			if want := `warn: some health checks cannot be excluded: no matches for "other","unknown"`; !strings.Contains(string(a.Body), want) {
				t.Errorf("no %q in\n%s", want, a.Body)
			}
		}},
		promise{"everybody may ask whether the server is well, but not about single checks", func(t *testing.T, c *cluster) {
			anyone := newClient(t, rest.AnonymousClientConfig(c.config))
			for _, path := range healthPaths {
				anyone.get(t, path).want(t, http.StatusOK)
				anyone.get(t, path+"?verbose").want(t, http.StatusOK)
				anyone.get(t, path+"/ping").refused(t, http.StatusForbidden, "Forbidden", path+"/ping")
			}
		}},
		promise{"metrics tell how the checks went", func(t *testing.T, c *cluster) {
			c.get(t, "/readyz").want(t, http.StatusOK)
			slis := string(c.get(t, "/metrics/slis").want(t, http.StatusOK).Body)
			for _, line := range []string{`kubernetes_healthcheck{name="ping",type="readyz"} 1`, `kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} `} {
				if !strings.Contains(slis, line) {
					t.Errorf("no %s in\n%s", line, slis)
				}
			}
		}},
	)
}

// TestHealthOutage stops Postgres. (A file of SQLite is not taken away from its server.)
func TestHealthOutage(t *testing.T) {
	t.Parallel()
	postgres := harness.NewPostgresServer(t)
	server := sqube.Start(t, sqube.Options{Datastore: postgres.Database(t)})
	c := newClient(t, server.Config(t))
	if err := postgres.Stop(); err != nil {
		t.Fatal(err)
	}
	// In /livez the check called etcd passes here: to start the server again brings no database back.
	eventually(t, "/readyz fails", func() bool { return c.get(t, "/readyz").Code == http.StatusInternalServerError })
	for _, path := range []string{"/healthz", "/readyz"} {
		a := c.get(t, path).want(t, http.StatusInternalServerError)
		for _, line := range []string{"[-]datastore failed: reason withheld\n", "[-]etcd failed: reason withheld\n", "[+]ping ok\n", "\n" + path[1:] + " check failed\n"} {
			if !strings.Contains(string(a.Body), line) {
				t.Errorf("no %q in the answer of %s:\n%s", line, path, a.Body)
			}
		}
		c.get(t, path+"/ping").want(t, http.StatusOK)
		for _, check := range []string{"etcd", "datastore"} {
			a = c.get(t, path+"/"+check).want(t, http.StatusInternalServerError)
			if want := "internal server error: the datastore does not answer\n"; string(a.Body) != want {
				t.Errorf("%s/%s answers %q", path, check, a.Body)
			}
		}
	}
	c.get(t, "/healthz?exclude=datastore").want(t, http.StatusOK)
	c.get(t, "/healthz?exclude=etcd").want(t, http.StatusOK)
	c.get(t, "/readyz?exclude=datastore").want(t, http.StatusOK)
	c.get(t, "/readyz?exclude=etcd&exclude=etcd-readiness").want(t, http.StatusOK)
	c.get(t, "/readyz/etcd-readiness").want(t, http.StatusInternalServerError)
	c.get(t, "/livez").want(t, http.StatusOK)
	c.get(t, "/livez/etcd").want(t, http.StatusOK)
	if err := postgres.Start(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/healthz", "/readyz", "/readyz/datastore"} {
		eventually(t, path+" is well again", func() bool { return c.get(t, path).Code == http.StatusOK })
	}
}

// TestHealthShutdown ends servers that take their time for it.
func TestHealthShutdown(t *testing.T) {
	engines(t, func(t *testing.T, engine harness.Engine) {
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, Args: []string{"--shutdown-delay-duration=1h"}})
		c := newClient(t, server.Config(t))
		if err := syscall.Kill(server.Pid(), syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		eventually(t, "/readyz fails", func() bool { return c.get(t, "/readyz").Code == http.StatusInternalServerError })
		if body := string(c.get(t, "/readyz").Body); !strings.Contains(body, "[-]shutdown failed: reason withheld\n") {
			t.Errorf("/readyz answers\n%s", body)
		}
		c.get(t, "/readyz/shutdown").want(t, http.StatusInternalServerError)
		c.get(t, "/livez").want(t, http.StatusOK)
		c.get(t, "/healthz").want(t, http.StatusOK)
		c.post(t, "/api/v1/namespaces/default/configmaps", configMap("late", nil)).want(t, http.StatusCreated)
	})
}

// TestHealthGrace starts servers that can't do what a start has to: a webhook keeps them from making a role anew.
func TestHealthGrace(t *testing.T) {
	engines(t, func(t *testing.T, engine harness.Engine) {
		dir := t.TempDir()
		server := sqube.Start(t, sqube.Options{Datastore: engine.Datastore, DataDir: dir})
		c := newClient(t, server.Config(t))
		c.post(t, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", map[string]any{
			"metadata": map[string]any{"name": "deny"},
			"webhooks": []any{map[string]any{
				"name": "deny.example.com", "sideEffects": "None", "admissionReviewVersions": []string{"v1"},
				"clientConfig": map[string]any{"url": "https://127.0.0.1:1/"},
				"rules": []any{map[string]any{
					"apiGroups": []string{"rbac.authorization.k8s.io"}, "apiVersions": []string{"v1"}, "resources": []string{"clusterroles"}, "operations": []string{"CREATE"},
				}},
			}},
		}).want(t, http.StatusCreated)
		eventually(t, "the webhook is in force", func() bool {
			return c.post(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All", map[string]any{"metadata": map[string]any{"name": "denied"}}).Code != http.StatusCreated
		})
		c.delete(t, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:basic-user").want(t, http.StatusOK)
		server.Stop(t)

		const hook = "poststarthook/rbac/bootstrap-roles"
		const failure = "[-]" + hook + " failed: reason withheld\n"
		for grace, code := range map[string]int{"0s": http.StatusInternalServerError, "1h": http.StatusOK} {
			t.Run(grace, func(t *testing.T) {
				c.url = startUnready(t, engine.Datastore, dir, "--livez-grace-period="+grace)
				a := c.get(t, "/livez").want(t, code)
				c.get(t, "/livez/"+hook).want(t, code)
				if failed := strings.Contains(string(a.Body), failure); failed != (code != http.StatusOK) {
					t.Errorf("/livez answers\n%s", a.Body)
				}
				if a := c.get(t, "/readyz").want(t, http.StatusInternalServerError); !strings.Contains(string(a.Body), failure) {
					t.Errorf("/readyz answers\n%s", a.Body)
				}
			})
		}
	})
}

// startUnready starts a server that does not get ready, waits until it answers, and returns its address. It ends with the
// test.
func startUnready(t *testing.T, datastore, dir string, args ...string) string {
	t.Helper()
	port, err := harness.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	serve := []string{"serve", "--data-dir", dir, "--datastore", datastore, "--bind-address", "127.0.0.1", "--secure-port", strconv.Itoa(port)}
	cmd := exec.CommandContext(t.Context(), sqube.Binary(t), append(serve, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Wait() }) // the end of the test's context has killed it
	url := fmt.Sprintf("https://127.0.0.1:%d", port)
	config := &rest.Config{Host: url, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server answers", func() bool {
		response, err := client.Get(url + "/livez")
		if err != nil {
			return false
		}
		response.Body.Close()
		return true
	})
	return url
}
