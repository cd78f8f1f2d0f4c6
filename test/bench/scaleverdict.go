package main

import (
	"context"
	"errors"
	"fmt"
)

// scaleStarts waits for the pods that are still starting, and reports how long all starts took.
func (s *session) scaleStarts(ctx context.Context) (result, error) {
	if err := s.cluster.settled(ctx); err != nil {
		return result{}, err
	}
	times := sorted(append(s.scale.starts, s.cluster.starts.take()...))
	r := result{Operations: len(times), P50: milliseconds(quantile(times, 50)), P99: milliseconds(quantile(times, 99))}
	s.target("start of pods, p99 ms", r.P99, 5000)
	return r, nil
}

// keepCall keeps the slowest API call, by the servers' own clocks.
func (s *session) keepCall(ctx context.Context, addresses ...string) error {
	for _, address := range addresses {
		config := *s.dialer.config
		config.Host = "https://" + address
		c, err := (&dialer{&config}).dial(ctx)
		if err != nil {
			return err
		}
		name, took, err := c.worstCall(ctx)
		clients{c}.close()
		if err != nil {
			return err
		}
		if took > s.scale.callTime {
			s.scale.call, s.scale.callTime = name, took
		}
	}
	return nil
}

// scaleCalls reports the slowest API call.
func (s *session) scaleCalls(ctx context.Context) (result, error) {
	addresses := s.server.Addresses
	if err := s.keepCall(ctx, addresses[len(addresses)-1]); err != nil {
		return result{}, err
	}
	r := result{Detail: s.scale.call, P99: milliseconds(s.scale.callTime)}
	s.target("API calls, p99 ms of "+r.Detail, r.P99, 1000)
	return r, nil
}

// scaleMemory reports the peak memory of a server since its start.
func (s *session) scaleMemory(context.Context) (result, error) {
	err := s.keepPeak()
	r := result{Peak: mebibytes(s.scale.peak)}
	s.target("peak RSS of a server, MiB", r.Peak, 768)
	return r, err
}

// scaleNodes stops the nodes and reports what they measured: how long the slowest kind of calls took, and how many calls failed
// for good.
func (s *session) scaleNodes(context.Context) (result, error) {
	s.cluster.close()
	calls, name, took := s.cluster.calls.worst()
	r := result{Operations: calls, Detail: name, P99: milliseconds(took), Failed: figure(s.cluster.ledger.failed())}
	s.target("API calls of nodes, p99 ms of "+name, r.P99, 1000)
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
