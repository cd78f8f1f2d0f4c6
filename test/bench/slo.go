package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// sliMetric is the histogram of Kubernetes' SLO on API calls: how long the server took, excluding webhooks and queues of API
// priority and fairness.
const sliMetric = "apiserver_request_sli_duration_seconds"

// worstCall returns the verb, resource and scope of the requests with the highest 99th percentile, and that percentile, from
// the server's own histograms. Watches and connections are left out.
func (c *client) worstCall(ctx context.Context) (name string, p99 time.Duration, err error) {
	if err := c.do(ctx, request{method: http.MethodGet, path: "/metrics", accept: "text/plain"}); err != nil {
		return "", 0, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&c.answer)
	if err != nil {
		return "", 0, fmt.Errorf("/metrics: %w", err)
	}
	for _, m := range families[sliMetric].GetMetric() {
		labels := map[string]string{}
		for _, label := range m.Label {
			labels[label.GetName()] = label.GetValue()
		}
		if labels["verb"] == "WATCH" || labels["verb"] == "CONNECT" {
			continue
		}
		if took := histogramQuantile(m.GetHistogram(), 0.99); took > p99 {
			p99 = took
			name = fmt.Sprintf("%s, scope %s, %d calls", callName(labels["verb"], labels["resource"], labels["subresource"]),
				labels["scope"], m.GetHistogram().GetSampleCount())
		}
	}
	if name == "" {
		return "", 0, fmt.Errorf("/metrics has no %s", sliMetric)
	}
	return name, p99, nil
}

// histogramQuantile interpolates within a bucket, like Prometheus' histogram_quantile.
func histogramQuantile(h *dto.Histogram, q float64) time.Duration {
	rank := q * float64(h.GetSampleCount())
	var below, from float64
	for _, bucket := range h.GetBucket() {
		count, to := float64(bucket.GetCumulativeCount()), bucket.GetUpperBound()
		if count >= rank && count > below {
			if math.IsInf(to, 1) {
				return time.Duration(from * float64(time.Second))
			}
			return time.Duration((from + (to-from)*(rank-below)/(count-below)) * float64(time.Second))
		}
		below, from = count, to
	}
	return time.Duration(from * float64(time.Second))
}
