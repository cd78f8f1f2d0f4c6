package main

import (
	"context"
	"errors"
	"time"
)

// scaleSizes are sizes for testing Kubernetes' SLOs that a small machine can simulate.
var scaleSizes = func() sizes {
	s := defaultSizes
	s.Nodes, s.Pods = 500, 10_000
	return s
}()

// The phases of `bench scale`: a cluster of many nodes with pods starting continuously.
const (
	phaseScaleJoin     = "nodes join"
	phaseScaleGrow     = "Deployments are made"
	phaseScaleFirst    = "Deployments are restarted and resized"
	phaseScaleMiddle   = "database in the middle"
	phaseScaleTakeover = "the server that leads is killed"
	phaseScaleSecond   = "Deployments are restarted and resized, second half"
	phaseScaleStarts   = "pods start"
	phaseScaleCalls    = "API calls"
	phaseScaleNodes    = "API calls of nodes, by their clocks"
	phaseScaleWrites   = "acknowledged writes"
	phaseScaleEnd      = "database at the end"
	phaseScaleMemory   = "memory"
)

// scaleInterval is how often each node renews its Lease and reports its status.
const scaleInterval = 10 * time.Second

func scalePhases(sizes) []phase {
	return []phase{
		{phaseScaleJoin, false, (*session).scaleJoin},
		{phaseScaleGrow, false, (*session).scaleGrow},
		{phaseScaleFirst, false, func(s *session, ctx context.Context) (result, error) { return s.scaleChurn(ctx, s.scale.middle) }},
		{phaseScaleMiddle, false, (*session).scaleDatabase},
		{phaseScaleTakeover, false, (*session).scaleKill},
		{phaseScaleSecond, false, func(s *session, ctx context.Context) (result, error) { return s.scaleChurn(ctx, s.scale.end) }},
		{phaseScaleEnd, false, (*session).scaleDatabase},
		{phaseScaleStarts, false, (*session).scaleStarts},
		{phaseScaleCalls, false, (*session).scaleCalls},
		{phaseScaleMemory, false, (*session).scaleMemory},
		{phaseScaleNodes, false, (*session).scaleNodes},
		{phaseScaleWrites, false, (*session).scaleWrites},
	}
}

// scaleRun is what phases leave for later ones.
type scaleRun struct {
	empty       int64 // bytes of the database before there were objects
	middle, end time.Time
	starts      []time.Duration
	call        string // the slowest API call, and its p99
	callTime    time.Duration
	peak        int64
}

// scaleJoin joins the nodes.
func (s *session) scaleJoin(ctx context.Context) (r result, err error) {
	if s.scale.empty, err = s.server.DataSize(); err != nil {
		return r, err
	}
	if err := s.openCluster(ctx); err != nil {
		return r, err
	}
	return s.scaleLoad(ctx, func() error {
		if err := s.join(ctx, s.sizes.Nodes, scaleInterval); err != nil {
			return err
		}
		return s.cluster.makeNamespaces(ctx, s.sizes.deployments())
	})
}

// scaleGrow creates the Deployments at a steady pace.
func (s *session) scaleGrow(ctx context.Context) (result, error) {
	began := time.Now()
	s.scale.middle, s.scale.end = began.Add(s.sizes.Duration/2), began.Add(s.sizes.Duration)
	return s.scaleLoad(ctx, func() error {
		next := time.Now()
		for i := range s.sizes.deployments() {
			if err := s.cluster.deploy(ctx, i, s.sizes.Replicas); err != nil {
				return err
			}
			if err := paced(ctx, &next, s.sizes.Replicas, s.sizes.Pace); err != nil {
				return err
			}
		}
		return nil
	})
}

// scaleChurn starts pods at a steady pace until end, unless that has already passed.
func (s *session) scaleChurn(ctx context.Context, end time.Time) (result, error) {
	if !time.Now().Before(end) {
		return result{}, nil
	}
	return s.scaleLoad(ctx, func() error { return s.cluster.churn(ctx, s.sizes, end) })
}

// scaleLoad reports the starts of pods during a load, the server's CPU time, and its peak memory so far.
func (s *session) scaleLoad(ctx context.Context, load func() error) (result, error) {
	var m sample
	if err := s.observe(&m, load); err != nil {
		return result{}, err
	}
	m.latencies = s.cluster.starts.take()
	s.scale.starts = append(s.scale.starts, m.latencies...)
	sorted(m.latencies)
	r := result{
		Operations: len(m.latencies), Seconds: figure(m.wall.Seconds()), PerSecond: figure(float64(len(m.latencies)) / m.wall.Seconds()),
		P50: milliseconds(quantile(m.latencies, 50)), P99: milliseconds(quantile(m.latencies, 99)),
		Cores: figure(m.cpu.Seconds() / m.wall.Seconds()), DatabaseCores: figure(m.databaseCPU.Seconds() / m.wall.Seconds()),
	}
	memory, err := readMemory(s.server.PIDs)
	r.RSS = mebibytes(memory.RSS)
	return r, errors.Join(err, s.keepPeak())
}

// keepPeak keeps the peak memory of a single server.
func (s *session) keepPeak() error {
	for _, pid := range s.server.PIDs {
		m, err := readMemory([]int{pid})
		if err != nil {
			return err
		}
		s.scale.peak = max(s.scale.peak, m.Peak)
	}
	return nil
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
	return result{Sizes: []figure{megabytes(size)}, Times: figure(size-s.scale.empty) / figure(live)}, err
}
