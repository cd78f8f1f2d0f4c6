package fleet

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/server/fleet/v1alpha1"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// commands runs sqube cluster on a host.
type commands struct{ *sqube.Server }

func startCommands(t *testing.T, engine harness.Engine, args ...string) *commands {
	t.Helper()
	c := &commands{sqube.Start(t, sqube.Options{Datastore: engine.Datastore, Args: append([]string{"--clusters"}, args...)})}
	harness.Eventually(t, "clusters are served", func() bool {
		_, _, code := c.try(t, "list")
		return code == 0
	})
	return c
}

// try runs a command as the host's administrator, unless args have another --kubeconfig.
func (c *commands) try(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	args = append([]string{"cluster"}, args...)
	if !slices.Contains(args, "--kubeconfig") {
		args = append(args, "--kubeconfig", c.Kubeconfig)
	}
	return sqube.Run(t, args)
}

// run is try of a command that must succeed.
func (c *commands) run(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := c.try(t, args...)
	if code != 0 || stderr != "" {
		t.Fatalf("sqube cluster %s ended with code %d and wrote\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// refuses runs a command that must fail with a message on one line.
func (c *commands) refuses(t *testing.T, message string, args ...string) {
	t.Helper()
	stdout, stderr, code := c.try(t, args...)
	if code == 0 || stdout != "" || !strings.Contains(stderr, message) || strings.Count(stderr, "\n") != 1 {
		t.Errorf("sqube cluster %s ended with code %d and wrote\n%s%swant %s", strings.Join(args, " "), code, stdout, stderr, message)
	}
}

// kubeconfig returns the path of a kubeconfig of a cluster.
func (c *commands) kubeconfig(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".kubeconfig")
	if got := c.run(t, "kubeconfig", name, "--file", path); got != name+"\n" {
		t.Errorf("sqube cluster kubeconfig prints %q", got)
	}
	return path
}

func clientOf(t *testing.T, kubeconfig string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	harness.Must(t, err)
	config.QPS = -1
	c, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	return c
}

// kubectl runs kubectl, which must succeed.
func kubectl(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	cmd := exec.Command(sqube.KubectlBinary(t), args...)
	cmd.Env = sqube.KubectlEnv(t, kubeconfig)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// object returns a cluster as sqube cluster list -o json prints it.
func (c *commands) object(t *testing.T, name string) *v1alpha1.Cluster {
	t.Helper()
	var list v1alpha1.ClusterList
	harness.Must(t, json.Unmarshal([]byte(c.run(t, "list", "-o", "json")), &list))
	for i := range list.Items {
		if list.Items[i].Name == name {
			return &list.Items[i]
		}
	}
	return nil
}

// TestCommands leads a cluster through its life with sqube cluster.
func TestCommands(t *testing.T) {
	t.Parallel()
	c := startCommands(t, harness.Engine{})
	if stdout, stderr, code := c.try(t, "list"); code != 0 || stdout != "" || stderr != "No clusters found.\n" {
		t.Errorf("without clusters, list ends with code %d and prints\n%s%s", code, stdout, stderr)
	}
	url := c.URL + "/clusters/default/dev"
	if got := c.run(t, "create", "dev", "--ttl", "8h", "--controllers", "None", "--administrator", "jane", "--administrator", "group:developers"); got != "cluster.fleet.sqube.io/dev created: "+url+"\n" {
		t.Errorf("create prints %s", got)
	}
	spec := c.object(t, "dev").Spec
	if spec.TTL.Duration.Hours() != 8 || spec.Controllers != v1alpha1.ControllersNone || len(spec.Administrators) != 2 || spec.Administrators[1].Kind != "Group" || spec.Administrators[1].Name != "developers" {
		t.Errorf("create made a cluster with the spec %+v", spec)
	}
	if got := c.run(t, "list", "-A"); !strings.HasPrefix(got, "NAMESPACE ") || !strings.Contains(got, "\ndefault     dev ") {
		t.Errorf("list -A prints\n%s", got)
	}
	if got := c.run(t, "list", "-o", "name") + c.run(t, "list", "-o", "yaml"); !strings.HasPrefix(got, "cluster.fleet.sqube.io/dev\napiVersion: fleet.sqube.io/v1alpha1\nitems:\n") || strings.Contains(got, "managedFields") {
		t.Errorf("list in other forms prints\n%s", got)
	}
	c.credentials(t, url)
	for _, act := range []struct {
		verb, prints string
		phase        v1alpha1.Phase
	}{{"sleep", "sleeps", v1alpha1.PhaseAsleep}, {"wake", "is awake", v1alpha1.PhaseAwake}} {
		if got := c.run(t, act.verb, "dev"); got != "cluster.fleet.sqube.io/dev "+act.prints+"\n" {
			t.Errorf("%s prints %s", act.verb, got)
		}
		harness.Eventually(t, "its phase is "+string(act.phase), func() bool { return c.object(t, "dev").Status.Phase == act.phase })
	}
	name := strings.TrimSpace(c.run(t, "fork", "dev", "-o", "name"))
	fork := strings.TrimPrefix(name, "cluster.fleet.sqube.io/")
	if made := c.object(t, fork); !strings.HasPrefix(fork, "dev-") || made == nil || made.Spec.Controllers != v1alpha1.ControllersNone || made.Spec.From.Cluster.Name != "dev" {
		t.Errorf("fork prints %s for the cluster %+v", name, made)
	}
	inFork := c.kubeconfig(t, fork)
	kubectl(t, inFork, "create", "configmap", "kept")
	if got := c.run(t, "delete", fork); got != name+" deleted\n" {
		t.Errorf("delete prints %s", got)
	}
	harness.Eventually(t, "the fork is gone", func() bool { return c.object(t, fork) == nil })
	if got := c.run(t, "undelete", fork); got != name+" is back\n" {
		t.Errorf("undelete prints %s", got)
	}
	kubectl(t, inFork, "get", "configmap", "kept")
	c.refuses(t, "history has no clusters.fleet.sqube.io default/never", "undelete", "never")
	c.refuses(t, "default/dev exists", "undelete", "dev")
}

// TestClaimCommands claims a cluster of a pool and gives it back.
func TestClaimCommands(t *testing.T) {
	t.Parallel()
	c := startCommands(t, harness.Engine{})
	pool := filepath.Join(t.TempDir(), "pool.yaml")
	harness.Must(t, os.WriteFile(pool, []byte(`{"apiVersion": "fleet.sqube.io/v1alpha1", "kind": "ClusterPool", "metadata": {"name": "ci"},
		"spec": {"replicas": 2, "claimTTL": "1h", "template": {"spec": {"controllers": "None"}}}}`), 0o600))
	kubectl(t, c.Kubeconfig, "create", "-f", pool)
	var names []string
	for range 2 {
		file := filepath.Join(t.TempDir(), "claimed")
		names = append(names, strings.TrimSpace(c.run(t, "claim", "ci", "--file", file, "--ttl", "20m")))
		kubectl(t, file, "create", "configmap", "mine")
	}
	if names[0] == names[1] || !strings.HasPrefix(names[0], "ci-") {
		t.Errorf("claims get %s", names)
	}
	if got := c.run(t, "release", names[0], names[1]); got != "cluster.fleet.sqube.io/"+names[0]+" released\ncluster.fleet.sqube.io/"+names[1]+" released\n" {
		t.Errorf("release prints %s", got)
	}
	harness.Eventually(t, "the clusters are gone", func() bool { return c.object(t, names[0]) == nil && c.object(t, names[1]) == nil })
	c.refuses(t, `"nope" not found`, "claim", "nope")
}

// credentials gets credentials of the cluster dev in each form.
func (c *commands) credentials(t *testing.T, url string) {
	t.Helper()
	file := c.kubeconfig(t, "dev")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig is %v, %v", info, err)
	}
	if printed := c.run(t, "kubeconfig", "dev"); !strings.Contains(printed, "server: "+url+"\n") {
		t.Errorf("kubeconfig prints\n%s", printed)
	}
	kubectl(t, file, "create", "configmap", "made", "--from-literal", "by=file")
	own := filepath.Join(t.TempDir(), "config")
	text, err := os.ReadFile(c.Kubeconfig)
	harness.Must(t, err)
	harness.Must(t, os.WriteFile(own, text, 0o600))
	if got := c.run(t, "kubeconfig", "dev", "--merge", "--kubeconfig", own); got != "kubectl --context dev get namespaces\n" {
		t.Errorf("kubeconfig --merge prints %s", got)
	}
	if got := kubectl(t, own, "--context", "dev", "get", "configmap", "made", "-o", "jsonpath={.data.by}"); got != "file" {
		t.Errorf("in the merged context is %s", got)
	}
	if got := kubectl(t, own, "get", "clusters", "-o", "name"); got != "cluster.fleet.sqube.io/dev\n" {
		t.Errorf("the current context is another one: %s", got)
	}
	merged, err := os.ReadFile(own)
	harness.Must(t, err)
	config, err := clientcmd.Load(merged)
	harness.Must(t, err)
	if who := config.AuthInfos["dev"]; who == nil || who.Token != "" || len(who.ClientKeyData) > 0 {
		t.Errorf("the merged kubeconfig has credentials: %+v", who)
	}
	c.run(t, "kubeconfig", "dev", "--merge", "--kubeconfig", own)
	c.refuses(t, `another context "sqube": give another name with --context-name`, "kubeconfig", "dev", "--merge", "--kubeconfig", own, "--context-name", "sqube")
}

// TestCommandsRefuse gives commands what they can't do.
func TestCommandsRefuse(t *testing.T) {
	t.Parallel()
	c := startCommands(t, harness.Engine{})
	c.run(t, "create", "dev")
	c.refuses(t, `"dev" already exists`, "create", "dev")
	c.refuses(t, "want one NAME (see sqube cluster create --help)", "create")
	c.refuses(t, "want the name of a cluster", "sleep")
	c.refuses(t, `"nope" not found`, "sleep", "nope")
	c.refuses(t, `"nope" not found`, "state", "nope")
	c.refuses(t, `"nope" not found`, "kubeconfig", "nope")
	c.refuses(t, "--at needs --from", "create", "other", "--at", "10m")
	c.refuses(t, "--at must be a duration like 2h, or a time", "fork", "dev", "--at", "yesterday")
	c.refuses(t, "--output must be one of json, yaml, name", "create", "other", "-o", "wide")
	c.refuses(t, "must not be given with", "kubeconfig", "dev", "--merge", "--file", "x")
	if c.object(t, "other") != nil {
		t.Error("a refused command made a cluster")
	}
	stdout, stderr, code := c.try(t, "sleep", "nope", "dev")
	if code == 0 || stdout != "cluster.fleet.sqube.io/dev sleeps\n" || !strings.Contains(stderr, `"nope" not found`) {
		t.Errorf("sleep of one that is there and one that is not ends with code %d and prints\n%s%s", code, stdout, stderr)
	}
	plain := &commands{sqube.Start(t, sqube.Options{})}
	plain.refuses(t, plain.URL+" hosts no clusters: start sqube serve with --clusters", "list")
	plain.refuses(t, "hosts no clusters", "create", "dev")
}
