package servertest_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sqube/sqube/server/servertest"
	"github.com/sqube/sqube/test/harness"
)

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
			harness.Must(t, err)
		}
		err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, harness.Patience, true, func(context.Context) (bool, error) {
			families, err := legacyregistry.DefaultGatherer.Gather()
			seen = gauge(families, "informer_store_resource_version", map[string]string{"name": "kube-apiserver", "resource": "namespaces"})
			return seen >= version, err
		})
		if err != nil {
			t.Errorf("the version that the informer has read is %v instead of %v: %v", seen, version, err)
		}
		harness.Must(t, s.Stop())
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
