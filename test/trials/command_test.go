package trials

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/server/trial"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const web = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1", resources: {requests: {cpu: 500m}}}]}
`

// TestTry tries changes on the cluster of a kubeconfig, which stays as it is.
func TestTry(t *testing.T) {
	t.Parallel()
	harness.Engines(t, func(t *testing.T, engine harness.Engine) {
		t.Parallel()
		c := newCluster(t, engine)
		c.kubectl(t, "apply", "-n", "shop", "-f", write(t, web))
		c.kubectl(t, "rollout", "status", "-n", "shop", "deployment/web")
		before := c.state(t)
		t.Run("files", func(t *testing.T) { triesFiles(t, c) })
		t.Run("user", func(t *testing.T) { triesAsUser(t, c) })
		t.Run("kubectl", func(t *testing.T) { triesKubectl(t, c) })
		t.Run("command", func(t *testing.T) { triesCommands(t, c) })
		t.Run("around", func(t *testing.T) { triesAround(t, c) })
		if after := c.state(t); after != before {
			t.Errorf("trials have changed the cluster from\n%s\nto\n%s", before, after)
		}
		t.Run("apply", func(t *testing.T) { appliesWhatWasTried(t, c) })
		t.Run("helm", func(t *testing.T) { triesHelm(t, c) })
	})
}

func triesFiles(t *testing.T, c *cluster) {
	change := write(t, strings.ReplaceAll(web, "web:1", "web:2"))
	r := c.try(t, "-n", "shop", "-f", change)
	r.ends(t, trial.AtRest)
	if !r.changes("Deployment", "web") || !r.changes("ReplicaSet", "web-") || r.Tried.Source != "sqube" {
		t.Errorf("a new image leads to %+v", r.Result)
	}

	r = c.try(t, "-n", "shop", "-f", write(t, strings.ReplaceAll(web, "500m", "5")+"---"+`
apiVersion: example.com/v1
kind: Boat
metadata: {name: sloop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: UPPER}
`))
	r.ends(t, trial.RefusedChange)
	if len(r.Refused) != 2 || r.Refused[0].Object != "ConfigMap shop/UPPER" || r.Refused[1].Object != "Boat sloop" {
		t.Errorf("unknown kinds and bad names are refused: %+v", r.Refused)
	}

	if r := c.try(t, "-f", filepath.Join(t.TempDir(), "absent.yaml")); r.code != 2 || !strings.Contains(r.stderr, "absent.yaml") {
		t.Errorf("an absent file ends with %d: %s", r.code, r.stderr)
	}
	if r := c.try(t); r.code != 2 || !strings.Contains(r.stderr, "want a change") {
		t.Errorf("no change ends with %d: %s", r.code, r.stderr)
	}
	if r := c.try(t, "--no-such-flag"); r.code != 2 {
		t.Errorf("an unknown flag ends with %d: %s", r.code, r.stderr)
	}

	// A copy that is kept is used again, and says how old it is.
	home := t.TempDir()
	for i := range 2 {
		stdout, stderr, code := sqube.Run(t, []string{"try", "--kubeconfig", c.Kubeconfig, "--reuse", "1h", "-o", "json", "-n", "shop", "-f", change}, inFolder(t, t.TempDir()), at(home))
		if code != 0 || strings.Contains(stdout, " ago") != (i == 1) {
			t.Errorf("--reuse ends with %d: %s\n%s", code, stderr, stdout)
		}
	}
	kept, err := filepath.Glob(filepath.Join(home, ".cache/sqube/copies/*"))
	harness.Must(t, err)
	if len(kept) != 1 {
		t.Fatalf("kept are %v", kept)
	}
	if info, err := os.Stat(kept[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kept copy has the mode %v, %v", info.Mode(), err)
	}
}

// triesAsUser tries as somebody who may do a part of the change.
func triesAsUser(t *testing.T, c *cluster) {
	_, err := c.client.RbacV1().Roles("shop").Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "configurer"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	_, err = c.client.RbacV1().RoleBindings("shop").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "configurer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "configurer"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "jane"}},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	change := write(t, web+"---"+`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
`)
	// As an administrator for jane, and as jane, who may read little: not even the roles.
	harness.Retry(t, "jane's role is known", func() error {
		return c.can(t, "jane")
	})
	for _, args := range [][]string{
		{"--kubeconfig", c.Kubeconfig, "--as", "jane"},
		{"--kubeconfig", c.as(t, "jane"), "--only-namespaces", "shop"},
	} {
		r := try(t, append(args, "-n", "shop", "-f", change)...)
		r.ends(t, trial.RefusedChange)
		if len(r.Refused) != 1 || r.Refused[0].Code != 403 || r.Refused[0].Object != "Deployment shop/web" || !r.changes("ConfigMap", "settings") || r.Tried.User != "jane" {
			t.Errorf("as jane, %v leads to %+v", args, r.Result)
		}
	}
}

func triesKubectl(t *testing.T, c *cluster) {
	r := c.try(t, "-n", "shop", "delete", "node/n3", "--drain")
	r.ends(t, trial.AtRest)
	if !r.changes("Node", "n3") {
		t.Errorf("deleting a node leads to %+v", r.Result)
	}
	r = c.try(t, "-n", "shop", "set", "image", "deployment/absent", "web=web:2")
	r.ends(t, trial.NotAtRest)
	if len(r.Reasons) == 0 || !strings.Contains(r.Reasons[0], `deployments.apps "absent" not found`) {
		t.Errorf("the reasons are %q", r.Reasons)
	}
	r = c.try(t, "--as", "nobody", "-n", "shop", "scale", "deployment/web", "--replicas=1")
	r.ends(t, trial.RefusedChange)
	if r := c.try(t, "get", "nodes", "--kubeconfig="+c.Kubeconfig); r.code != 2 || !strings.Contains(r.stderr, "another cluster") {
		t.Errorf("a command for the cluster itself ends with %d: %s", r.code, r.stderr)
	}
}

func triesCommands(t *testing.T, c *cluster) {
	trace := filepath.Join(t.TempDir(), "trace")
	r := c.try(t, "--", "sh", "-c", `sleep 1000 & echo $! >`+trace+`; stat -c %a "$KUBECONFIG" >>`+trace+`; kubectl config current-context >>`+trace+`; kubectl create configmap -n shop from-command; exit 7`)
	r.ends(t, trial.NotAtRest)
	text, err := os.ReadFile(trace)
	harness.Must(t, err)
	child, rest, _ := strings.Cut(string(text), "\n")
	if rest != "600\nsqube\n" || !r.changes("ConfigMap", "from-command") || !strings.Contains(strings.Join(r.Reasons, " "), "exit status 7") {
		t.Errorf("the command sees %q, and leads to %+v", rest, r.Result)
	}
	if running(child) {
		t.Error("the child of the command still runs")
	}
	// One that waits for what never comes is ended.
	r = c.try(t, "--for", "1m", "wait", "-n", "shop", "--for=condition=Never", "deployment/web", "--timeout=1h")
	r.ends(t, trial.NotAtRest)
	if !strings.Contains(strings.Join(r.Reasons, " "), "was interrupted after it had waited for 1m0s") {
		t.Errorf("the reasons are %q", r.Reasons)
	}
	if r := c.try(t, "--timeout", "1ms", "get", "nodes"); r.code != 2 || !strings.Contains(r.stderr, "--timeout") {
		t.Errorf("a trial that takes too long ends with %d: %s", r.code, r.stderr)
	}
}

// triesHelm upgrades a release, whose hook's Job must complete before Helm ends.
func triesHelm(t *testing.T, c *cluster) {
	helm := sqube.Program(t, "helm")
	c.program(t, helm, "install", "-n", "shop", "front", "testdata/front", "--no-hooks")
	r := c.try(t, "-n", "shop", "--", helm, "upgrade", "front", "testdata/front", "--set", "replicas=2", "--wait")
	r.ends(t, trial.AtRest)
	if !r.changes("Job", "migrate") || !r.changes("Deployment", "front") {
		t.Errorf("an upgrade leads to %+v", r.Result)
	}
	r = c.try(t, "-n", "shop", "--", helm, "upgrade", "front", "testdata/front", "--set", "cpu=50", "--wait")
	r.ends(t, trial.NotAtRest)
}

// appliesWhatWasTried makes changes after their trials, unless what they stand on has changed since.
func appliesWhatWasTried(t *testing.T, c *cluster) {
	image := func() string {
		return c.kubectl(t, "get", "-n", "shop", "deployment/web", "-o", "jsonpath={.spec.template.spec.containers[0].image} {.spec.replicas}")
	}
	home := t.TempDir()
	reused := func(args ...string) (stderr string, code int) {
		stdout, stderr, code := sqube.Run(t, append([]string{"try", "--kubeconfig", c.Kubeconfig, "--reuse", "1h", "-n", "shop"}, args...), inFolder(t, t.TempDir()), at(home))
		return stdout + stderr, code
	}
	second := write(t, strings.ReplaceAll(web, "web:1", "web:2"))
	if out, code := reused("-f", second); code != 0 || !strings.Contains(out, "For real: kubectl apply --server-side --kubeconfig ") || image() != "web:1 3" {
		t.Errorf("a trial ends with %d: %s", code, out)
	}
	c.kubectl(t, "annotate", "-n", "shop", "deployment/web", "note=changed")
	if out, code := reused("--apply", "-f", second); code != 1 || !strings.Contains(out, "this has changed: deployments.apps shop/web; try again: nothing was applied") || image() != "web:1 3" {
		t.Errorf("after a change of the object, --apply ends with %d: %s", code, out)
	}
	if r := c.try(t, "-n", "shop", "--apply", "-f", second); r.code != 0 || image() != "web:2 3" {
		t.Errorf("--apply ends with %d: %s", r.code, r.stderr)
	}

	home = t.TempDir()
	if out, code := reused("scale", "deployment/web", "--replicas=2"); code != 0 || !strings.Contains(out, " --namespace shop scale deployment/web --replicas=2\n") {
		t.Errorf("a trial of kubectl's words ends with %d: %s", code, out)
	}
	c.kubectl(t, "create", "quota", "-n", "shop", "small", "--hard=pods=100")
	if out, code := reused("--apply", "scale", "deployment/web", "--replicas=2"); code != 1 || !strings.Contains(out, "resourcequotas shop/small") || image() != "web:2 3" {
		t.Errorf("after a change of the quota, --apply ends with %d: %s", code, out)
	}
	if r := c.try(t, "--apply", "-n", "shop", "scale", "deployment/web", "--replicas=2"); r.code != 0 || image() != "web:2 2" {
		t.Errorf("--apply of kubectl's words ends with %d: %s", r.code, r.stderr)
	}
	big := write(t, strings.ReplaceAll(web, "500m", "50"))
	if r := c.try(t, "--apply", "--force-conflicts", "-n", "shop", "-f", big); r.code != 1 || !strings.Contains(r.stderr, "--apply=always") || image() != "web:2 2" {
		t.Errorf("--apply of what does not come to rest ends with %d: %s", r.code, r.stderr)
	}
}
