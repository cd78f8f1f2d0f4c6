package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

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
	r := result{Operations: calls, Detail: name, P99: milliseconds(took), Failed: figure(s.cluster.ledger.failed())}
	r = s.objective(phaseScaleNodes, r, time.Second)
	if r.Failed > 0 {
		return r, fmt.Errorf("%.0f requests of nodes failed for good", r.Failed)
	}
	return r, nil
}

// scaleWrites looks for the nodes' acknowledged writes.
func (s *session) scaleWrites(ctx context.Context) (result, error) {
	writes, missing, err := s.cluster.ledger.missing(ctx, s.cluster)
	if err == nil {
		err = errors.Join(missing...)
	}
	return result{Operations: writes, Failed: figure(len(missing))}, err
}

// scaleCollections are the collections that the size of the database is compared with: all large ones.
var scaleCollections = []string{
	"/api/v1/pods", "/api/v1/nodes", "/api/v1/events", "/api/v1/endpoints", "/api/v1/services", "/apis/coordination.k8s.io/v1/leases",
	"/apis/apps/v1/deployments", "/apis/apps/v1/replicasets", "/apis/discovery.k8s.io/v1/endpointslices",
}

// scaleDatabase reports the size of the database.
func (s *session) scaleDatabase(ctx context.Context) (result, error) {
	size, err := s.server.DataSize()
	if err != nil {
		return result{}, err
	}
	live, err := s.liveBytes(ctx, scaleCollections)
	return result{Sizes: []figure{megabytes(size)}, Times: figure(size-s.scale.emptySize) / figure(live)}, err
}
