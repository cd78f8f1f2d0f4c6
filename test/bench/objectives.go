package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
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

// objective reports a p99 and compares it with what Kubernetes promises.
func (s *session) objective(what string, r result, limit time.Duration) result {
	r.Limit = milliseconds(limit)
	verdict := "holds"
	if r.P99 > r.Limit {
		verdict = "is missed"
	}
	progress("%s: %s %s: p99 is %.0f ms, of at most %.0f; %d in all; %s", s.server.Name, what, verdict, r.P99, r.Limit, r.Operations, r.Detail)
	s.target(what+", p99 ms "+r.Detail, r.P99, r.Limit)
	return r
}

// scaleStarts waits for the pods that are still starting, and reports how long all starts took.
func (s *session) scaleStarts(ctx context.Context) (result, error) {
	if err := s.settled(ctx); err != nil {
		return result{}, err
	}
	times := sorted(append(s.scale.starts, s.cluster.starts.take()...))
	r := result{Operations: len(times), P50: milliseconds(quantile(times, 50)), P99: milliseconds(quantile(times, 99))}
	return s.objective(phaseScaleStarts, r, 5*time.Second), nil
}

// countCalls adds the API calls that the servers have counted so far, or subtracts them if sign is -1.
func (s *session) countCalls(ctx context.Context, sign int) error {
	if s.scale.calls == nil {
		s.scale.calls = apiCalls{}
	}
	for _, address := range s.server.Addresses {
		c, err := s.dialer.as(s.dialer.config.BearerToken, []string{address}).dial(ctx)
		if err != nil {
			return err
		}
		err = c.countCalls(ctx, s.scale.calls, sign)
		clients{c}.close()
		if err != nil {
			return err
		}
	}
	return nil
}

// scaleCalls reports the slowest kind of API calls, by the servers' own clocks: of lists of a scope, or of all calls that concern
// one object if scope is empty.
func scaleCalls(scope string, limit time.Duration) operation {
	names := map[string]string{"": phaseScaleObject, "namespace": phaseScaleSpace, "cluster": phaseScaleAll}
	return func(s *session, _ context.Context) (result, error) {
		name, took, n := s.scale.calls.worst(scope)
		if n == 0 {
			return result{}, fmt.Errorf("there were no calls of scope %q", scope)
		}
		return s.objective(names[scope], result{Operations: n, Detail: name, P99: milliseconds(took)}, limit), nil
	}
}

// scaleNodes stops the nodes and reports what they measured: how long the slowest kind of calls took, and how many calls failed
// for good.
func (s *session) scaleNodes(context.Context) (result, error) {
	s.cluster.close()
	calls, name, took := s.cluster.calls.worst()
	r := result{Operations: calls, Detail: name, P99: milliseconds(took), Failed: figure(s.cluster.failed.Load())}
	r = s.objective(phaseScaleNodes, r, time.Second)
	if r.Failed > 0 {
		return r, fmt.Errorf("%.0f requests of nodes failed for good", r.Failed)
	}
	return r, nil
}

// scaleCollections are the collections that the size of the database is compared with: all large ones.
var scaleCollections = []string{
	"/api/v1/pods", "/api/v1/nodes", "/api/v1/events", "/api/v1/endpoints", "/api/v1/services", "/apis/coordination.k8s.io/v1/leases",
	"/apis/apps/v1/deployments", "/apis/apps/v1/replicasets", "/apis/discovery.k8s.io/v1/endpointslices",
}

// scaleDatabase reports the size of the database.
func (s *session) scaleDatabase(ctx context.Context) (result, error) {
	return s.sizeOver(ctx, scaleCollections)
}

// missedTargets is the error, after all measurements, of figures that exceed their targets.
type missedTargets struct{ lines []string }

// Error names them.
func (m *missedTargets) Error() string { return "missed targets: " + strings.Join(m.lines, "; ") }

// target records that a figure should be at most the limit.
func (s *session) target(what string, value, limit figure) {
	if value > limit {
		s.missed = append(s.missed, fmt.Sprintf("%s: %.1f, not at most %.1f", what, value, limit))
	}
}

// judge returns an error if targets were missed and the sizes are strict.
func (s *session) judge() error {
	if len(s.missed) == 0 || !s.sizes.Strict {
		return nil
	}
	return &missedTargets{s.missed}
}
