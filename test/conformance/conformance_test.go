package conformance

import (
	_ "embed"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/fakenode"
	"github.com/sqube/sqube/test/harness/sqube"
)

var (
	programs = flag.String("e2e", "", "folder with upstream's e2e.test and ginkgo, which play the specs; without it, only their names are checked")
	focus    = flag.String("focus", "", "regular expression that names of specs must match to be played")
)

//go:embed specs.txt
var list string

// specs are the names of those that are played.
func specs() []string { return strings.Split(strings.TrimSpace(list), "\n") }

// place is where the specs are played. open returns the kubeconfig of an administrator.
type place struct {
	name    string
	open    func(t *testing.T, datastore string) (kubeconfig string)
	without string // a part of the names of specs that are not played there
}

var places = []place{
	{"server", func(t *testing.T, datastore string) string {
		return sqube.Start(t, sqube.Options{Datastore: datastore, Args: []string{"--control-plane"}}).Kubeconfig
	}, "no spec"},
	{"cluster", openCluster, "requests can be classified by adding FlowSchema"}, // it reads /metrics, which are the host's alone
}

// TestConformance checks that the specs are upstream's, and with -e2e plays them.
func TestConformance(t *testing.T) {
	known := conformance(t)
	for _, name := range specs() {
		if strings.Contains(name, "[Conformance]") && !known[strings.TrimSpace(strings.ReplaceAll(name, "  ", " "))] {
			t.Errorf("upstream has no spec %q", name)
		}
	}
	if *programs == "" || t.Failed() {
		return
	}
	for _, p := range places {
		t.Run(p.name, func(t *testing.T) {
			harness.Engines(t, func(t *testing.T, engine harness.Engine) { play(t, p.open(t, engine.Datastore), p.without) })
		})
	}
}

// conformance returns the names of the specs of upstream's list of those that each conformant cluster passes.
func conformance(t *testing.T) map[string]bool {
	t.Helper()
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	harness.Must(t, err)
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(module)), "test/conformance/testdata/conformance.yaml"))
	harness.Must(t, err)
	var all []struct{ Codename string }
	harness.Must(t, yaml.Unmarshal(text, &all))
	names := map[string]bool{}
	for _, one := range all {
		names[strings.TrimSpace(strings.ReplaceAll(one.Codename, "  ", " "))] = true
	}
	return names
}

// openCluster starts a server that hosts a cluster.
func openCluster(t *testing.T, datastore string) string {
	s := sqube.Start(t, sqube.Options{Datastore: datastore, Args: []string{"--clusters"}})
	cluster := `{"apiVersion":"fleet.sqube.io/v1alpha1","kind":"Cluster","metadata":{"name":"e2e","namespace":"default"},
		"spec":{"controllers":"All","scheduler":true,"sleep":{"after":"0s"}}}`
	kubectl := func(stdin string, args ...string) []byte {
		command := exec.CommandContext(t.Context(), sqube.KubectlBinary(t), append(args, "--kubeconfig", s.Kubeconfig)...)
		command.Stdin = strings.NewReader(stdin)
		out, err := command.Output()
		harness.Must(t, err)
		return out
	}
	kubectl(cluster, "create", "-f", "-")
	kubectl("", "wait", "--for=jsonpath={.status.database}", "cluster/e2e", "--timeout=1m")
	var credentials struct{ Status struct{ Kubeconfig string } }
	harness.Must(t, json.Unmarshal(kubectl("{\"spec\":{\"expirationSeconds\":14400}}", "create", "-f", "-", "--raw",
		"/apis/fleet.sqube.io/v1alpha1/namespaces/default/clusters/e2e/kubeconfig"), &credentials))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	harness.Must(t, os.WriteFile(path, []byte(credentials.Status.Kubeconfig), 0o600))
	return path
}

// nodes is how many nodes are simulated.
const nodes = 3

// play plays the specs in the cluster of a kubeconfig.
func play(t *testing.T, kubeconfig, without string) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	harness.Must(t, err)
	fakenode.Join(t, config, simnodes.Options{Count: nodes, Capacity: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("64Gi"),
	}})
	folder, err := filepath.Abs(*programs)
	harness.Must(t, err)
	reports := t.TempDir()
	args := []string{"--procs=4", "--no-color", "--json-report=report.json", "--output-dir", reports, "--timeout=2h"}
	only, err := regexp.Compile(*focus)
	harness.Must(t, err)
	for _, name := range specs() {
		if only.MatchString(name) && !strings.Contains(name, without) {
			args = append(args, "--focus", regexp.QuoteMeta(name)+"$")
		}
	}
	args = append(args, filepath.Join(folder, "e2e.test"), "--", "--kubeconfig", kubeconfig, "--provider=skeleton", "--disable-log-dump",
		"--allowed-not-ready-nodes=-1", "--kubectl-path", sqube.KubectlBinary(t))
	command := exec.CommandContext(t.Context(), filepath.Join(folder, "ginkgo"), args...)
	command.Dir = reports
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	ran := command.Run() // what has failed is in the report
	text, err := os.ReadFile(filepath.Join(reports, "report.json"))
	harness.Must(t, err)
	var suites []struct {
		SpecReports []struct {
			ContainerHierarchyTexts []string
			LeafNodeText, State     string
			Failure                 struct{ Message string }
		}
	}
	harness.Must(t, json.Unmarshal(text, &suites))
	passed := 0
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			switch name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " "); spec.State {
			case "passed":
				passed++
			case "skipped", "pending":
			default:
				t.Errorf("%s: %s: %.2000s", name, spec.State, spec.Failure.Message)
			}
		}
	}
	t.Logf("%d specs and setups have passed", passed)
	if ran != nil && !t.Failed() {
		t.Error(ran)
	}
}
