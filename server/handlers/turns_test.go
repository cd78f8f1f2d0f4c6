package handlers

import (
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sqube/sqube/test/harness"
)

// TestWaitingWatchesAreCounted checks that the gauge of requests is the one that is scraped, which takes upstream's exact definition.
func TestWaitingWatchesAreCounted(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/tests?watch=1", nil)
	info := &request.RequestInfo{IsResourceRequest: true, Verb: "watch", APIVersion: "v1", Resource: "tests"}
	r = r.WithContext(request.WithRequestInfo(r.Context(), info))
	count := longRunning(r)
	count.Inc()
	defer count.Dec()
	families, err := legacyregistry.DefaultGatherer.Gather()
	harness.Must(t, err)
	for _, family := range families {
		if family.GetName() != "apiserver_longrunning_requests" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetValue() == "tests" && metric.GetGauge().GetValue() == 1 {
					return
				}
			}
		}
	}
	t.Error("apiserver_longrunning_requests lacks a watch that waits")
}
