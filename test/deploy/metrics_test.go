package deploy

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// others are the metrics and labels in the rules, alerts and dashboards that kubernetes-mixin and kube-prometheus have for API servers,
// and some that other dashboards use.
var others = []string{
	"count by (git_version) (kubernetes_build_info)",
	"sum by (code, verb, resource) (apiserver_request_total)",
	"sum by (verb, scope, resource, subresource, le) (apiserver_request_sli_duration_seconds_bucket)",
	"sum by (verb, scope, resource, subresource) (apiserver_request_sli_duration_seconds_count)",
	"apiserver_request_terminations_total",
	"sum by (le) (apiserver_client_certificate_expiration_seconds_bucket)", "apiserver_client_certificate_expiration_seconds_count",
	"sum by (name, reason) (aggregator_unavailable_apiservice_total)", "sum by (name) (aggregator_unavailable_apiservice)",
	"sum by (code) (rest_client_requests_total)", "sum by (verb, le) (rest_client_request_duration_seconds_bucket)",
	"sum by (name, le) (workqueue_queue_duration_seconds_bucket)", "sum by (name) (workqueue_adds_total + workqueue_depth)",
	"process_resident_memory_bytes", "process_cpu_seconds_total", "go_goroutines",
	"apiserver_storage_size_bytes",
	"sum by (group, resource) (apiserver_resource_objects + apiserver_resource_size_estimate_bytes + apiserver_storage_events_received_total)",
	"sum by (operation, group, resource) (etcd_requests_total)", "sum by (operation, group, resource, le) (etcd_request_duration_seconds_bucket)",
	"sum by (request_kind) (apiserver_current_inflight_requests + apiserver_current_inqueue_requests)",
	"sum by (status) (authentication_token_cache_request_total)",
}

// TestMetrics checks that a server exposes every metric, with its labels, used in the alerts, in the dashboard and by others, and
// that deploy/metrics.md describes all of sqube's own metrics.
func TestMetrics(t *testing.T) {
	t.Parallel()
	harness.Engines(t, testMetrics)
}

func testMetrics(t *testing.T, engine harness.Engine) {
	s := sqube.Start(t, sqube.Options{Datastore: engine.Datastore})
	client, err := kubernetes.NewForConfig(s.Config(t))
	harness.Must(t, err)
	useAll(t, s.Config(t))
	queries := append(readDashboard(t).queries(), others...)
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
		// A request that is out of time is terminated, unless its answer is faster.
		_, _ = client.Discovery().RESTClient().Get().AbsPath("/api/v1/configmaps").Param("timeout", "1ns").DoRaw(t.Context())
		text, err := client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		harness.Must(t, err)
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
	document, err := os.ReadFile("../../deploy/metrics.md")
	harness.Must(t, err)
	for _, name := range slices.Sorted(maps.Keys(exposed)) {
		name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if strings.HasPrefix(name, "sqube_") && !strings.Contains(string(document), "`"+name+"`") {
			t.Errorf("deploy/metrics.md does not describe %s", name)
		}
	}
}

// useAll sends requests without which some metrics have no values: with a token, and to an API that becomes unavailable.
func useAll(t *testing.T, config *rest.Config) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "unknown"}}
	if _, err := client.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const services = "/apis/apiregistration.k8s.io/v1/apiservices"
	local := []byte(`{"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.example.com"},
"spec": {"group": "example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}}`)
	harness.Must(t, client.Discovery().RESTClient().Post().AbsPath(services).Body(local).Do(t.Context()).Error())
	harness.Eventually(t, "the API is available", func() bool {
		text, err := client.Discovery().RESTClient().Get().AbsPath(services, "v1.example.com").DoRaw(t.Context())
		return err == nil && strings.Contains(string(text), `"Available"`)
	})
	missing := []byte(`{"spec": {"insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "missing"}}}`)
	harness.Must(t, client.Discovery().RESTClient().Patch(types.MergePatchType).AbsPath(services, "v1.example.com").Body(missing).Do(t.Context()).Error())
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
