package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// TestObjectives counts calls between two readings of a server's metrics, and holds lists to the limit of their scope.
func TestObjectives(t *testing.T) {
	reading := 0
	metrics := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reading++
		fmt.Fprintln(w, "# TYPE "+sliMetric+" histogram")
		for labels, seconds := range map[string]float64{ // of the calls after the first reading; all before took 60 s
			`verb="GET",resource="pods",scope="resource"`:     0.5,
			`verb="PUT",resource="leases",scope="resource"`:   2,
			`verb="LIST",resource="pods",scope="namespace"`:   4,
			`verb="LIST",resource="pods",scope="cluster"`:     10,
			`verb="LIST",resource="nodes",scope="resource"`:   0.5, // of one name
			`verb="WATCH",resource="pods",scope="cluster"`:    60,
			`verb="CONNECT",resource="pods",scope="resource"`: 60,
		} {
			before, after := 7, 100*(reading-1)
			total := 0
			for _, bound := range []float64{0.5, 2, 4, 10, 60} {
				if bound == seconds {
					total += after
				}
				if bound == 60 {
					total += before
				}
				fmt.Fprintf(w, "%s_bucket{%s,le=\"%v\"} %d\n", sliMetric, labels, bound, total)
			}
			fmt.Fprintf(w, "%s_bucket{%s,le=\"+Inf\"} %d\n%[1]s_sum{%[2]s} 0\n%[1]s_count{%[2]s} %[3]d\n", sliMetric, labels, total)
		}
	}))
	t.Cleanup(metrics.Close)
	c := &client{http: metrics.Client(), base: metrics.URL}
	s := &session{server: &server{}, sizes: sizes{Strict: true}}
	s.scale.calls = apiCalls{}
	for _, sign := range []int{-1, 1} {
		harness.Must(t, c.countCalls(t.Context(), s.scale.calls, sign))
	}
	for _, objective := range []struct {
		scope, slowest string
		limit, p99     time.Duration
		calls          int
	}{
		{"", "PUT leases", time.Second, 2 * time.Second, 300},
		{"namespace", "LIST pods", 5 * time.Second, 4 * time.Second, 100},
		{"cluster", "LIST pods", 30 * time.Second, 10 * time.Second, 100},
	} {
		r, err := scaleCalls(objective.scope, objective.limit)(s, t.Context())
		harness.Must(t, err)
		if limit := milliseconds(objective.p99); r.P99 > limit || r.P99 < limit/2 || r.Operations != objective.calls || !strings.Contains(r.Detail, objective.slowest) {
			t.Errorf("%q: %+v", objective.scope, r)
		}
	}
	if err := s.judge(); err == nil || !strings.Contains(err.Error(), "PUT leases") || strings.Contains(err.Error(), "LIST") {
		t.Errorf("the verdict is %v", err)
	}
}
