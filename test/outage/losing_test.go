package outage

import (
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/faults"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestLosingPostgres takes the database away in several ways. Meanwhile each request gets a retryable error in time; afterwards
// everything works again, including the open watch.
func TestLosingPostgres(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	postgres := harness.NewPostgresServer(t)
	dsn := postgres.Database(t)
	proxy := faults.NewProxy(t, harness.ParseDSN(t, dsn).Host)
	c := serve(t, through(t, dsn, proxy.Addr()), "--datastore-timeout", timeout.String())
	token := viewer(t, c)
	w := c.watch(t)
	controllersRun(t, c)
	before := len(serving(t, c))
	do := func(steps ...func() error) func(*testing.T) {
		return func(t *testing.T) {
			for _, step := range steps {
				harness.Must(t, step())
			}
		}
	}
	signal := func(s syscall.Signal) func() error { return func() error { return postgres.Signal(s) } }
	plain := func(f func()) func() error { return func() error { f(); return nil } }
	for i, fault := range []struct {
		name          string
		lose, recover func(*testing.T)
		kubectl       string // prints this and more
	}{
		{"its packets are lost", do(plain(proxy.Drop)), do(plain(proxy.Resume)), ""},
		{"it hangs", do(signal(syscall.SIGSTOP)), do(signal(syscall.SIGCONT)), ""},
		{"it crashes", do(postgres.StopAtOnce), do(postgres.Start), "Error from server (ServiceUnavailable): the datastore is unavailable, try again"},
		{"its packets are lost, and then it is replaced", do(plain(proxy.Drop)), do(postgres.Stop, plain(proxy.Cut), postgres.Start, plain(proxy.Resume)), ""},
	} {
		t.Run(fault.name, func(t *testing.T) {
			name := fmt.Sprint("before-", i)
			c.creates(t, name)
			w.brings(t, "ADDED "+name)
			fault.lose(t)
			configMaps := "/api/v1/namespaces/default/configmaps"
			requests := []request{
				{method: http.MethodGet, path: configMaps + "/" + name},
				{method: http.MethodGet, path: configMaps + "/" + name, token: token},
				{method: http.MethodGet, path: configMaps + "/" + name + "?timeout=1s"},
				{method: http.MethodGet, path: configMaps},
				{method: http.MethodGet, path: configMaps + "?resourceVersion=0"},
				{method: http.MethodGet, path: "/apis/apps/v1/deployments?limit=10"},
				{method: http.MethodGet, path: configMaps + "?watch=true"},
				{method: http.MethodGet, path: configMaps + "?watch=true&resourceVersion=1"},
				{method: http.MethodPut, path: configMaps + "/" + name, body: fmt.Sprintf(`{"metadata":{"name":%q}}`, name)},
				{method: http.MethodPost, path: configMaps, body: `{"metadata":{"generateName":"never-"}}`},
				{method: http.MethodDelete, path: configMaps + "/" + name},
				{method: http.MethodDelete, path: configMaps},
			}
			var asking sync.WaitGroup
			for range 10 { // more than there are connections
				for _, r := range requests {
					asking.Go(func() { lost(t, c, r, timeout) })
				}
			}
			asking.Wait()
			for path, want := range map[string]int{"/livez": http.StatusOK, "/readyz": http.StatusInternalServerError} {
				response, body, err := c.do(t, request{method: http.MethodGet, path: path})
				if err != nil || response.StatusCode != want || path == "/readyz" && !strings.Contains(string(body), "[-]datastore failed") {
					t.Errorf("%s: %v, %v\n%s", path, response, err, body)
				}
			}
			if found := sqube.StoreMetrics(t, c); found["unreachable_seconds"] <= 0 || found["failures_total"] == 0 {
				t.Errorf("the metrics are %v", found)
			}
			if fault.kubectl != "" {
				kubectl := exec.CommandContext(t.Context(), sqube.KubectlBinary(t), "get", "--raw", configMaps+"/"+name)
				kubectl.Env = sqube.KubectlEnv(t, c.Kubeconfig)
				if out, err := kubectl.CombinedOutput(); err == nil || !strings.HasPrefix(string(out), fault.kubectl) {
					t.Errorf("kubectl shows %v\n%s", err, out)
				}
			}
			fault.recover(t)
			c.WaitReady(t)
			name = fmt.Sprint("after-", i)
			c.creates(t, name)
			// Requests meanwhile returned errors, but may still have taken effect.
			for {
				event, err := w.next()
				if err != nil || strings.HasPrefix(event, "ERROR") {
					t.Fatalf("the watch ends: %s %v", event, err)
				}
				if event == "ADDED "+name {
					break
				}
			}
			harness.Eventually(t, "the metrics show that Postgres responds", func() bool {
				found := sqube.StoreMetrics(t, c)
				return found["unreachable_seconds"] == 0 && found["tail_lag_seconds"] == 0
			})
		})
	}
	t.Run("its connections are killed", func(t *testing.T) {
		for i := range 5 {
			execute(t, dsn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
			name := fmt.Sprint("killed-", i)
			c.creates(t, name)
			w.brings(t, "ADDED "+name)
		}
	})
	t.Run("it no longer accepts writes", func(t *testing.T) {
		readOnly := func(setting string) {
			execute(t, dsn, "ALTER SYSTEM SET default_transaction_read_only = "+setting)
			execute(t, dsn, "SELECT pg_reload_conf()")
		}
		readOnly("on")
		// Its state may be stale, if another server has taken its place.
		harness.Eventually(t, "reads are rejected too", func() bool {
			response, body, err := c.do(t, request{method: http.MethodGet, path: "/api/v1/namespaces/default/configmaps"})
			return err == nil && response.StatusCode != http.StatusOK && refused(response, body) == nil
		})
		readOnly("off")
		c.creates(t, "writable")
		w.brings(t, "ADDED writable")
	})
	var left []string
	defer func() {
		if len(left) > before {
			t.Errorf("%d requests are running instead of %d:\n%s", len(left), before, strings.Join(left, "\n\n"))
		}
	}()
	harness.Eventually(t, "no request is left running", func() bool {
		left = serving(t, c)
		return len(left) <= before
	})
	if found := regexp.MustCompile(`(?m)^panic: .*|.*panicked: true.*|.*Observed a panic.*`).FindString(c.Log(t)); found != "" {
		t.Errorf("the server's log has a panic: %s", found)
	}
	c.Stop(t)
}

// controllersRun waits until the controllers run: each has its own goroutines.
func controllersRun(t *testing.T, c *cluster) {
	t.Helper()
	namespaces := c.CoreV1().Namespaces()
	_, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "settles"}}, metav1.CreateOptions{})
	if err == nil {
		err = namespaces.Delete(t.Context(), "settles", metav1.DeleteOptions{})
	}
	harness.Must(t, err)
	harness.Eventually(t, "a namespace is emptied", func() bool {
		_, err := namespaces.Get(t.Context(), "settles", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// viewer returns the token of a service account that may read everything.
func viewer(t *testing.T, c *cluster) (token string) {
	t.Helper()
	_, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "default-views"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: "default"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "a service account's token is valid", func() bool {
		got, err := c.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			return false
		}
		token = got.Status.Token
		response, _, err := c.do(t, request{method: http.MethodGet, path: "/api/v1/namespaces/default/configmaps", token: token})
		return err == nil && response.StatusCode == http.StatusOK
	})
	return token
}

// lost sends a request that must fail in time because the database does not respond.
func lost(t *testing.T, c *cluster, r request, timeout time.Duration) {
	const slack = 20 * time.Second // for a busy machine; ten requests waiting for each other would take longer
	began := time.Now()
	response, body, err := c.do(t, r)
	took := time.Since(began)
	if err == nil {
		err = refused(response, body)
	}
	if err == nil && took > timeout+slack {
		err = fmt.Errorf("it took %s", took)
	}
	if err != nil {
		t.Errorf("%s %s: %v\n%s", r.method, r.path, err, body)
	}
}

// serving returns the stacks of the server's goroutines that serve requests.
func serving(t *testing.T, c *cluster) []string {
	t.Helper()
	_, body, err := c.do(t, request{method: http.MethodGet, path: "/debug/pprof/goroutine?debug=2"})
	harness.Must(t, err)
	stacks := strings.Split(string(body), "\n\n")
	return slices.DeleteFunc(stacks, func(stack string) bool { return !strings.Contains(stack, "k8s.io/apiserver/pkg/server/filters.") })
}
