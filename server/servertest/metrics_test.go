package servertest_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics/legacyregistry"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/server/servertest"
)

// leftOut lists kube-apiserver's metrics that have no values here, with the reason.
const leftOut = "testdata/metrics-left-out.txt"

// TestMetrics holds the metrics of a server against upstream's list of kube-apiserver's: each is registered, or in leftOut and without
// values. Only those that upstream marks ALPHA may be left out.
func TestMetrics(t *testing.T) {
	servertest.Run(t, servertest.Options{})
	left, upstream := readLeftOut(t), upstreamMetrics(t)
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if left[family.GetName()] != "" {
			t.Errorf("%s has values, but is in %s", family.GetName(), leftOut)
		}
	}
	for name := range upstream {
		if left[name] == "" && !registered(name) {
			t.Errorf("%s is not registered, and not in %s", name, leftOut)
		}
	}
	for name := range left {
		if upstream[name] != "ALPHA" {
			t.Errorf("%s has %s, which is %q in kube-apiserver", leftOut, name, upstream[name])
		}
	}
}

// readLeftOut returns the reasons of leftOut, by metric.
func readLeftOut(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.Open(leftOut)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reasons, reason := map[string]string{}, ""
	for lines := bufio.NewScanner(file); lines.Scan(); {
		switch name, isReason := strings.CutPrefix(lines.Text(), "# "); {
		case isReason:
			reason = name
		case name != "" && reason == "":
			t.Errorf("%s has no reason for %s", leftOut, name)
		case name != "":
			reasons[name] = reason
		}
	}
	return reasons
}

// upstreamMetrics returns the stability levels of the metrics that kube-apiserver has at /metrics, according to upstream's
// documentation.
func upstreamMetrics(t *testing.T) map[string]string {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "test/instrumentation/documentation/documentation-list.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Namespace, Subsystem, Name, StabilityLevel string
		ComponentEndpoints                         []struct{ Component, Endpoint string }
	}
	if err := yaml.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, metric := range all {
		for _, at := range metric.ComponentEndpoints {
			if at.Component == "kube-apiserver" && at.Endpoint == "/metrics" {
				found[prometheus.BuildFQName(metric.Namespace, metric.Subsystem, metric.Name)] = metric.StabilityLevel
			}
		}
	}
	if len(found) < 200 {
		t.Fatalf("upstream lists %d metrics of kube-apiserver", len(found))
	}
	return found
}

// registered reports whether there is a metric of that name, with values or without: another one of its name can't be registered.
func registered(name string) bool {
	probe := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "A probe.", ConstLabels: prometheus.Labels{"probe": "probe"}})
	if err := legacyregistry.Registerer().Register(probe); err != nil {
		return true
	}
	legacyregistry.Registerer().Unregister(probe)
	return false
}

// TestInformerMetrics checks that the server's informers have metrics, also those of a second server of the process.
func TestInformerMetrics(t *testing.T) {
	var seen float64
	for range 2 {
		s := servertest.Run(t, servertest.Options{})
		namespaces := client(t, s).CoreV1().Namespaces()
		var version float64
		for version <= seen { // what the previous server has left
			made, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "made-"}}, metav1.CreateOptions{})
			if err == nil {
				version, err = strconv.ParseFloat(made.ResourceVersion, 64)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, patience, true, func(context.Context) (bool, error) {
			families, err := legacyregistry.DefaultGatherer.Gather()
			seen = gauge(families, "informer_store_resource_version", map[string]string{"name": "kube-apiserver", "resource": "namespaces"})
			return seen >= version, err
		})
		if err != nil {
			t.Errorf("the version that the informer has read is %v instead of %v: %v", seen, version, err)
		}
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// gauge returns the value of the first gauge with these labels, 0 if there is none.
func gauge(families []*dto.MetricFamily, name string, labels map[string]string) float64 {
	for _, family := range families {
		for _, m := range family.GetMetric() {
			matches := 0
			for _, label := range m.GetLabel() {
				if want, ok := labels[label.GetName()]; ok && want == label.GetValue() {
					matches++
				}
			}
			if family.GetName() == name && matches == len(labels) {
				return m.GetGauge().GetValue()
			}
		}
	}
	return 0
}
