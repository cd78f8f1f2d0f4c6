package deploy

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// TestMetrics checks that a server exposes every metric, with its labels, used in the alerts and the dashboard, and that the
// README describes all of sqube's own metrics.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := sqube.Start(t, sqube.Options{Datastore: harness.SQLite(t)})
	client, err := kubernetes.NewForConfig(s.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	queries := readDashboard(t).queries()
	for _, alert := range alerts(t) {
		queries = append(queries, alert.Expr)
	}
	var exposed map[string]map[string]bool
	var missing []string
	defer func() {
		if t.Failed() {
			t.Logf("there is no %q", missing)
		}
	}()
	harness.Eventually(t, "everything used in queries is exposed", func() bool {
		text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		exposed, missing = parseMetrics(string(text)), nil
		for _, query := range queries {
			metrics, labels := names(query)
			if len(metrics) == 0 {
				t.Fatalf("no metric in %s", query)
			}
			missing = append(missing, lacks(exposed, metrics, labels)...)
		}
		return len(missing) == 0
	})
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(exposed)) {
		name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if strings.HasPrefix(name, "sqube_") && !strings.Contains(string(readme), "`"+name+"`") {
			t.Errorf("the README does not describe %s", name)
		}
	}
}

// prometheusOwn are metrics that Prometheus itself generates, and ownLabels the labels that it adds.
var (
	prometheusOwn = []string{"up", "ALERTS"}
	ownLabels     = []string{"job", "namespace", "instance"}
)

// lacks returns the metrics and labels in a query that are not exposed.
func lacks(exposed map[string]map[string]bool, metrics, labels []string) (missing []string) {
	known := map[string]bool{}
	for _, metric := range metrics {
		switch {
		case slices.Contains(prometheusOwn, metric):
			return nil
		case exposed[metric] == nil:
			missing = append(missing, metric)
		}
		maps.Copy(known, exposed[metric])
	}
	for _, label := range labels {
		if !known[label] && !slices.Contains(ownLabels, label) {
			missing = append(missing, fmt.Sprintf("label %s of %v", label, metrics))
		}
	}
	return missing
}

var (
	sampleLine = regexp.MustCompile(`^(\w+)(?:\{(.*)\})? \S+$`)
	labelName  = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
	quoted     = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	matchers   = regexp.MustCompile(`\{([^}]*)\}`)
	ranges     = regexp.MustCompile(`\[[^\]]*\]`)
	clauses    = regexp.MustCompile(`\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	functions  = regexp.MustCompile(`\b\w+\s*\(`)
	// A word that begins with a letter; numbers do not.
	words = regexp.MustCompile(`\b[a-zA-Z_]\w*`)
)

// parseMetrics returns the labels of each metric in Prometheus' text format.
func parseMetrics(text string) map[string]map[string]bool {
	found := map[string]map[string]bool{}
	for line := range strings.Lines(text) {
		sample := sampleLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if sample == nil {
			continue
		}
		if found[sample[1]] == nil {
			found[sample[1]] = map[string]bool{}
		}
		for _, label := range labelName.FindAllStringSubmatch(sample[2], -1) {
			found[sample[1]][label[1]] = true
		}
	}
	return found
}

// names returns the metrics and the labels in a query, whose syntax promtool checks.
func names(query string) (metrics, labels []string) {
	query = quoted.ReplaceAllString(query, "")
	for _, part := range []*regexp.Regexp{matchers, clauses} {
		for _, match := range part.FindAllStringSubmatch(query, -1) {
			labels = append(labels, words.FindAllString(match[1], -1)...)
		}
		query = part.ReplaceAllString(query, " ")
	}
	query = ranges.ReplaceAllString(query, " ")
	query = functions.ReplaceAllString(query, " ")
	return words.FindAllString(query, -1), labels
}
