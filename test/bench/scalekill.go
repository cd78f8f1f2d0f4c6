package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// scaleKill kills the leader, if there are several servers, while pods keep starting. It reports how long it took until a pod
// ran that was created under another leader.
func (s *session) scaleKill(ctx context.Context) (r result, err error) {
	if len(s.server.running) < 2 {
		return r, nil
	}
	before, err := s.leader(ctx)
	if err != nil {
		return r, err
	}
	load, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	n := s.sizes
	go func() {
		ended <- s.cluster.churn(load, n, time.Now().Add(untilTimeout))
	}()
	defer func() { stop(); <-ended }()
	killed := time.Now()
	if err := s.killFirst(); err != nil {
		return r, err
	}
	if err := s.countCalls(ctx, -1); err != nil {
		return r, err
	}
	if err := until(ctx, "another server leads", func() (bool, error) {
		now, err := s.leader(ctx)
		return now != "" && now != before, err
	}); err != nil {
		return r, err
	}
	led := time.Now()
	select {
	case <-s.cluster.starts.firstAfter(led):
	case err := <-ended:
		ended <- err
		return r, fmt.Errorf("no pod has started under the second server: %w", err)
	}
	took := time.Since(killed)
	progress("%s: another server leads after %s, and has started a pod after %s", s.server.Name, led.Sub(killed), took)
	// The pods of this time, with those that were created under the first server.
	if err := wait(ctx, n.Duration/6); err != nil {
		return r, err
	}
	times := sorted(s.cluster.starts.take())
	s.scale.starts = append(s.scale.starts, times...)
	r = result{Operations: len(times), Seconds: figure(took.Seconds()), P50: milliseconds(quantile(times, 50)), P99: milliseconds(quantile(times, 99))}
	return r, s.countCalls(ctx, 1)
}

// leader returns the holder of the controllers' Lease.
func (s *session) leader(ctx context.Context) (string, error) {
	lease, err := s.cluster.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "sqube-controllers", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}

// killFirst kills the server that was started first. From then on, the second one is measured.
func (s *session) killFirst() error {
	victim := s.server.running[0]
	if err := victim.End(syscall.SIGKILL); err != nil {
		return err
	}
	if err := victim.keeper.Dismiss(); err != nil {
		return err
	}
	s.server.running, s.server.PIDs, s.server.Addresses = s.server.running[1:], s.server.PIDs[1:], s.server.Addresses[1:]
	s.dialer.config.Host, s.scale.killed = "https://"+s.server.Addresses[0], true
	return nil
}
