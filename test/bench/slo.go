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

// apiCalls has how many API calls took how long, by verb, resource and scope. Watches and connections are left out.
type apiCalls map[apiCall]*callCounts

type apiCall struct{ verb, resource, subresource, scope string }

// list returns whether the objective is that of lists, which depends on the scope; that of other calls does not.
func (c apiCall) list() bool { return c.verb == "LIST" && c.scope != "resource" }

// callCounts are how many calls took no longer than each of the bounds, in seconds.
type callCounts struct {
	bounds []float64
	counts []int
	total  int
}

// countCalls adds what the server has counted so far, times sign.
func (c *client) countCalls(ctx context.Context, calls apiCalls, sign int) error {
	if err := c.do(ctx, request{method: http.MethodGet, path: "/metrics", accept: "text/plain"}); err != nil {
		return err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&c.answer)
	if err != nil {
		return fmt.Errorf("/metrics: %w", err)
	}
	if families[sliMetric] == nil {
		return fmt.Errorf("/metrics has no %s", sliMetric)
	}
	for _, m := range families[sliMetric].GetMetric() {
		labels := map[string]string{}
		for _, label := range m.Label {
			labels[label.GetName()] = label.GetValue()
		}
		if labels["verb"] == "WATCH" || labels["verb"] == "CONNECT" {
			continue
		}
		call := apiCall{labels["verb"], labels["resource"], labels["subresource"], labels["scope"]}
		if calls[call] == nil {
			calls[call] = &callCounts{}
		}
		calls[call].add(m.GetHistogram(), sign)
	}
	return nil
}

func (c *callCounts) add(h *dto.Histogram, sign int) {
	if c.bounds == nil {
		for _, bucket := range h.GetBucket() {
			c.bounds = append(c.bounds, bucket.GetUpperBound())
		}
		c.counts = make([]int, len(c.bounds))
	}
	for i, bucket := range h.GetBucket() {
		c.counts[i] += sign * int(bucket.GetCumulativeCount())
	}
	c.total += sign * int(h.GetSampleCount())
}

// worst returns the kind of calls with the highest 99th percentile, that percentile, and how many calls of all kinds there were: of
// lists of a scope, or of all other calls if scope is empty.
func (a apiCalls) worst(scope string) (name string, p99 time.Duration, calls int) {
	for call, counts := range a {
		if call.list() != (scope != "") || call.list() && call.scope != scope || counts.total <= 0 {
			continue
		}
		calls += counts.total
		if took := counts.quantile(0.99); took > p99 {
			p99 = took
			name = fmt.Sprintf("(%s, %d calls)", callName(call.verb, call.resource, call.subresource), counts.total)
		}
	}
	return name, p99, calls
}

// quantile interpolates within a bucket, like Prometheus' histogram_quantile.
func (c *callCounts) quantile(q float64) time.Duration {
	rank := q * float64(c.total)
	var below, from float64
	for i, to := range c.bounds {
		count := float64(c.counts[i])
		if count >= rank && count > below {
			if math.IsInf(to, 1) {
				break
			}
			return time.Duration((from + (to-from)*(rank-below)/(count-below)) * float64(time.Second))
		}
		below, from = count, to
	}
	return time.Duration(from * float64(time.Second))
}
