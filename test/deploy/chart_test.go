package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const chart = "../../deploy/chart"

// The values with which the chart is tested.
var valueFiles = []string{"testdata/least.yaml", "testdata/most.yaml", "testdata/secrets.yaml", "testdata/mirror.yaml"}

// cluster is the cluster into which sqube is installed: another sqube, with the Prometheus operator's definitions and a
// namespace "sqube" that only allows restricted Pods.
type cluster struct{ env []string }

func newCluster(t *testing.T) *cluster {
	s := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t)})
	c := &cluster{env: sqube.KubectlEnv(t, s.Kubeconfig)}
	definitions := filepath.Join(harness.Module(t, "github.com/prometheus-operator/prometheus-operator@v0.85.0",
		"h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="), "example/prometheus-operator-crd/monitoring.coreos.com_")
	c.kubectl(t, "", "apply", "--server-side", "-f", definitions+"servicemonitors.yaml", "-f", definitions+"prometheusrules.yaml")
	harness.Eventually(t, "kubectl finds the custom resources", func() bool { // `kubectl wait` fails if there are no conditions yet
		_, err := c.run("", sqube.KubectlBinary(t), "get", "servicemonitors,prometheusrules", "-A")
		return err == nil
	})
	c.kubectl(t, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sqube", "labels": {
		"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}}}`, "create", "-f", "-")
	return c
}

// kubectl runs kubectl, which must succeed, and returns its output, including warnings.
func (c *cluster) kubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	out, err := c.run(input, sqube.KubectlBinary(t), args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// helm runs helm, which must succeed, and returns its output.
func (c *cluster) helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := c.run("", sqube.Program(t, "helm"), args...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (c *cluster) run(input, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Env, cmd.Stdin = c.env, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestChart installs the chart like its users.
func TestChart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, values := range valueFiles {
		t.Run(strings.TrimSuffix(filepath.Base(values), ".yaml"), func(t *testing.T) {
			c.helm(t, "lint", "--strict", chart, "-f", values)
			manifests := c.helm(t, "template", "try", chart, "-n", "sqube", "-f", values)
			out := c.kubectl(t, manifests, "apply", "-n", "sqube", "--dry-run=server", "--validate=strict", "-f", "-")
			if strings.Contains(out, "Warning") || !strings.Contains(out, "deployment.apps/") {
				t.Errorf("kubectl apply prints\n%s", out)
			}
		})
	}
	t.Run("installed, changed and removed", func(t *testing.T) {
		const everything = "deployments,services,secrets,configmaps,poddisruptionbudgets,networkpolicies,servicemonitors,prometheusrules"
		objects := func() string {
			return c.kubectl(t, "", "get", everything, "-n", "sqube", "-l", "app.kubernetes.io/instance=sqube", "-o", "name")
		}
		notes := c.helm(t, "install", "sqube", chart, "-n", "sqube", "-f", "testdata/least.yaml")
		if !strings.Contains(notes, "https://sqube.sqube.svc:6443") {
			t.Errorf("helm install prints\n%s", notes)
		}
		c.helm(t, "upgrade", "sqube", chart, "-n", "sqube", "-f", "testdata/most.yaml")
		if replicas := c.kubectl(t, "", "get", "deployment", "api", "-n", "sqube", "-o", "jsonpath={.spec.replicas}"); replicas != "3" {
			t.Errorf("after the upgrade there are %s replicas", replicas)
		}
		if there := objects(); !strings.Contains(there, "servicemonitor.monitoring.coreos.com/api\n") {
			t.Errorf("after the upgrade there are\n%s", there)
		}
		c.helm(t, "uninstall", "sqube", "-n", "sqube")
		if left := objects(); left != "" {
			t.Errorf("helm uninstall leaves\n%s", left)
		}
	})
}

// TestChartRefusesWrongValues checks that errors for invalid values say what to set instead.
func TestChartRefusesWrongValues(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		set  []string
		says string
	}{
		{[]string{"image.repository="}, "set image.repository to where you have put the image"},
		{[]string{"datastore.dsn="}, "set datastore.dsn to the DSN of a Postgres database, or datastore.existingSecret"},
		{[]string{"datastore.existingSecret=a"}, "set datastore.existingSecret or datastore.dsn, password and ca, not both"},
		{[]string{"datastore.dsn=sqlite://a"}, "at '/datastore/dsn'"},
		{[]string{"pki.key="}, "set pki.key to what `head -c 32 /dev/urandom | base64` prints, or pki.existingSecret"},
		{[]string{"pki.existingSecret=a"}, "set pki.existingSecret or pki.key, not both"},
		{[]string{"pki.key=short"}, "at '/pki/key'"},
		{[]string{"metrics.serviceMonitor.enabled=true"}, "set metrics.token to the token that Prometheus shows, or metrics.existingSecret"},
		{[]string{"metrics.token=a", "metrics.existingSecret=b"}, "set metrics.existingSecret or metrics.token, not both"},
		{[]string{"replicas=3"}, "additional properties 'replicas' not allowed"},
		{[]string{"config.datastore=sqlite://a"}, "config.datastore is the chart's to set: see datastore, pki, tls and service"},
	} {
		args := []string{"template", "try", chart, "-f", "testdata/least.yaml"}
		for _, value := range test.set {
			args = append(args, "--set", value)
		}
		out, err := exec.Command(sqube.Program(t, "helm"), args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), test.says) {
			t.Errorf("with %v, helm (error %v) does not print %q but\n%s", test.set, err, test.says, out)
		}
	}
}

// TestChartVersion compares the version in the chart with that of the API.
func TestChartVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(chart + "/Chart.yaml")
	harness.Must(t, err)
	version, err := exec.Command(sqube.Binary(t), "version").Output()
	harness.Must(t, err)
	serves, _, _ := strings.Cut(strings.TrimPrefix(string(version), "Kubernetes API "), "\n")
	if !strings.Contains(string(text), "appVersion: "+serves+"\n") {
		t.Errorf("sqube serves %s, but the chart has\n%s", serves, text)
	}
}
