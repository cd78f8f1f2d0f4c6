package serve

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const hostedClusters = "/apis/fleet.sqube.io/v1alpha1/namespaces/default/clusters"

// makeHosted makes a cluster that a server hosts, and waits until it has a database.
func makeHosted(t *testing.T, host kubernetes.Interface, name, spec string) {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion": "fleet.sqube.io/v1alpha1", "kind": "Cluster", "metadata": {"name": %q}, "spec": %s}`, name, spec)
	harness.Eventually(t, "Clusters can be created", func() bool {
		return host.Discovery().RESTClient().Post().AbsPath(hostedClusters).Body([]byte(body)).Do(t.Context()).Error() == nil
	})
	harness.Eventually(t, "cluster "+name+" has a database", func() bool { return hostedStatus(t, host, name)["database"] != nil })
}

func hostedStatus(t *testing.T, host kubernetes.Interface, name string) map[string]any {
	t.Helper()
	text, err := host.Discovery().RESTClient().Get().AbsPath(hostedClusters, name).DoRaw(t.Context())
	harness.Must(t, err)
	o := struct{ Status map[string]any }{}
	harness.Must(t, json.Unmarshal(text, &o))
	return o.Status
}

// hostedKubeconfig returns the file of a kubeconfig for an administrator of a cluster.
func hostedKubeconfig(t *testing.T, host kubernetes.Interface, name string) string {
	t.Helper()
	text, err := host.Discovery().RESTClient().Post().AbsPath(hostedClusters, name, "kubeconfig").Body([]byte("{}")).DoRaw(t.Context())
	harness.Must(t, err)
	o := struct{ Status struct{ Kubeconfig string } }{}
	harness.Must(t, json.Unmarshal(text, &o))
	file := filepath.Join(t.TempDir(), name+".kubeconfig")
	harness.Must(t, os.WriteFile(file, []byte(o.Status.Kubeconfig), 0o600))
	return file
}

// TestBackupsOfHostedClusters backs up the clusters that a server hosts, one and all, and restores one, while the server and the others go on.
func TestBackupsOfHostedClusters(t *testing.T) {
	t.Parallel()
	s := serve(t, []string{"--clusters"})
	host := client(t, s.Kubeconfig)
	makeHosted(t, host, "web", `{"sleep": {"after": "1s"}}`)
	makeHosted(t, host, "other", `{"sleep": {"after": "0s"}}`)
	web, other := client(t, hostedKubeconfig(t, host, "web")), client(t, hostedKubeconfig(t, host, "other"))
	first := setData(t, web, "kept", "before")
	setData(t, other, "kept", "other")

	of := func(args ...string) []string { return append(args, "--data-dir", s.DataDir) }
	file, all := filepath.Join(t.TempDir(), "web.db"), filepath.Join(t.TempDir(), "all")
	succeeds(t, of("backup", file, "--cluster", "default/web"))
	succeeds(t, of("backup", all, "--all"))
	refuses(t, "is not empty: give another folder", of("backup", all, "--all"))
	refuses(t, "--cluster default/none: sqlite://", of("backup", file+"2", "--cluster", "default/none"))
	for name, want := range map[string]string{"web": "before", "other": "other"} {
		from := filepath.Join(all, "default", name+".db")
		succeeds(t, []string{"check", from})
		copied := serve(t, []string{"--in-memory", "--from", from})
		if got := data(t, client(t, copied.Kubeconfig), "kept"); got != want {
			t.Errorf("the backup of %s has %q, not %q", name, got, want)
		}
	}
	makeHosted(t, host, "restored", fmt.Sprintf(`{"from": {"backup": %q}}`, file))
	if got := data(t, client(t, hostedKubeconfig(t, host, "restored")), "kept"); got != "before" {
		t.Errorf("a cluster from a backup has %q", got)
	}

	place := filepath.Join(t.TempDir(), "followed")
	follower := sqube.Command(t, of("backup", "--follow", place, "--all", "--sync-interval", "10ms"))
	last := setData(t, web, "kept", "after")
	awaitBackup(t, filepath.Join(place, "default", "web"), last)
	setData(t, host, "of", "the host")
	follower.Stop(t)
	if text := follower.Stdout(t); follower.Code(t) != 0 || !strings.Contains(text, " and 3 clusters") {
		t.Errorf("following all prints %q\n%s", text, follower.Log(t))
	}
	for name, want := range map[string]string{"default/web": "after", "default/other": "other", "_host": ""} {
		then := "sqlite://" + filepath.Join(t.TempDir(), "then.db")
		succeeds(t, []string{"restore", filepath.Join(place, name), "--datastore", then})
		if got := succeeds(t, []string{"show", "configmaps", cmp.Or(map[string]string{"_host": "of"}[name], "kept"), "--datastore", then}); !strings.Contains(got, cmp.Or(want, "the host")) {
			t.Errorf("the followed backup of %s has\n%s", name, got)
		}
	}
	restore := func(args ...string) []string { return of(append(args, "--cluster", "default/web", "--force")...) }
	refuses(t, "the cluster default/other is awake: put it to sleep first (sqube cluster sleep)", of("restore", file, "--cluster", "default/other", "--force"))
	asleep := func() {
		t.Helper()
		harness.Eventually(t, "the cluster sleeps", func() bool {
			logs, err := filepath.Glob(filepath.Join(s.DataDir, "clusters", hostedStatus(t, host, "web")["database"].(string), "*-wal"))
			harness.Must(t, err)
			return len(logs) == 0
		})
	}
	asleep()
	succeeds(t, restore("restore", file))
	if got := data(t, web, "kept"); got != "before" { // with the former keys
		t.Errorf("the restored cluster has %q", got)
	}
	if next := setData(t, web, "new", "restored"); number(t, next) <= number(t, last) {
		t.Errorf("after the restore, resourceVersion %s follows %s", next, last)
	}
	asleep()
	database := "sqlite://" + filepath.Join(s.DataDir, "clusters", hostedStatus(t, host, "web")["database"].(string), "sqube.db")
	succeeds(t, restore("restore", database, "--to-revision", first))
	if got := data(t, web, "new"); got != "" {
		t.Errorf("what was created later is %q at the moment before", got)
	}
	if got := data(t, other, "kept"); got != "other" {
		t.Errorf("the other cluster has %q", got)
	}
	if _, err := host.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("the host: %v", err)
	}
}

// TestHostedClustersOnPostgres reads a cluster of a server on Postgres without the server, and changes nothing.
func TestHostedClustersOnPostgres(t *testing.T) {
	t.Parallel()
	dsn := harness.Postgres(t)
	s := serve(t, []string{"--clusters", "--datastore", dsn})
	host := client(t, s.Kubeconfig)
	makeHosted(t, host, "web", "{}")
	web := client(t, hostedKubeconfig(t, host, "web"))
	version := setData(t, web, "kept", "before")
	of := func(args ...string) []string { return append(args, "--datastore", dsn, "--cluster", "default/web") }
	for want, args := range map[string][]string{version: {"history", "configmaps", "kept"}, "before": {"show", "configmaps", "kept"}, "nothing wrong": {"check"}} {
		if got := succeeds(t, of(args...)); !strings.Contains(got, want) {
			t.Errorf("sqube %s prints\n%s", args[0], got)
		}
	}
	place := filepath.Join(t.TempDir(), "followed")
	follower := sqube.Command(t, of("backup", "--follow", place, "--sync-interval", "10ms"))
	last := setData(t, web, "kept", "after")
	awaitBackup(t, place, last)
	follower.Stop(t)
	makeHosted(t, host, "restored", fmt.Sprintf(`{"from": {"backup": %q}}`, place))
	if got := data(t, client(t, hostedKubeconfig(t, host, "restored")), "kept"); got != "after" {
		t.Errorf("a cluster from a followed backup has %q", got)
	}
	const refused = "only its server changes a hosted cluster"
	refuses(t, refused, of("restore", place, "--force"))
	refuses(t, refused, of("migrate", "up"))
	refuses(t, refused, of("check", "--repair"))
	refuses(t, "is backed up with --follow", of("backup", filepath.Join(t.TempDir(), "web")))
}
