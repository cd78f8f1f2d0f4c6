package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

const alertFile = chart + "/files/alerts.yaml"

// ruleFile is a file of Prometheus' rules.
type ruleFile struct {
	Groups []ruleGroup `json:"groups"`
}

type ruleGroup struct {
	Name  string `json:"name"`
	Rules []rule `json:"rules"`
}

type rule struct {
	Alert       string            `json:"alert,omitempty"`
	Record      string            `json:"record,omitempty"`
	Expr        string            `json:"expr"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func alerts(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(alertFile)
	harness.Must(t, err)
	var rules ruleFile
	harness.Must(t, yaml.UnmarshalStrict(text, &rules))
	return rules.Groups[0].Rules
}

// TestAlerts tests the alerts in several situations: in each, exactly the expected ones fire. Every alert fires in at least
// one.
func TestAlerts(t *testing.T) {
	t.Parallel()
	const situations = "testdata/alerts_test.yaml"
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", alertFile)
	promtool(t, "test", "rules", situations)
	text, err := os.ReadFile(situations)
	harness.Must(t, err)
	fire := regexp.MustCompile(`\{alertname="(\w+)"`).FindAllStringSubmatch(string(text), -1)
	fired := map[string]bool{}
	for _, match := range fire {
		fired[match[1]] = true
	}
	for _, alert := range alerts(t) {
		if !fired[alert.Alert] {
			t.Errorf("%s fires in no situation of %s", alert.Alert, situations)
		}
		if alert.Labels["severity"] == "" || alert.Annotations["summary"] == "" || alert.Annotations["description"] == "" {
			t.Errorf("%s lacks a severity, a summary or a description", alert.Alert)
		}
	}
}

// checkQueries parses queries with promtool.
func checkQueries(t *testing.T, queries []string) {
	t.Helper()
	var rules []rule
	for i, query := range queries {
		rules = append(rules, rule{Record: fmt.Sprint("query_", i), Expr: query})
	}
	text, err := yaml.Marshal(ruleFile{Groups: []ruleGroup{{Name: "queries", Rules: rules}}})
	harness.Must(t, err)
	file := filepath.Join(t.TempDir(), "queries.yaml")
	harness.Must(t, os.WriteFile(file, text, 0o600))
	promtool(t, "check", "rules", file)
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(sqube.Program(t, "promtool"), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
