package main

import (
	"context"
	"errors"
	"time"
)

func planePhases(sizes) []phase {
	return []phase{
		{phaseStart, false, func(s *session, _ context.Context) (result, error) { return s.started() }, []row{seconds.with(true)}},
		{"start to the first pod that a Deployment has on a node", false, (*session).planeReady, []row{seconds.with(true)}},
		{"all pods run", false, (*session).planePods, nil},
		{"memory, all pods run", false, (*session).memory, memoryRows},
		{"nothing but nodes' Leases", false, (*session).idle, []row{idleCPU, idleDatabaseCPU, writtenMinute}},
	}
}

// planeReady joins the nodes, creates a Deployment, and reports how long after the start of the first process one of its pods
// runs. That needs the API, the controllers and the scheduler.
func (s *session) planeReady(ctx context.Context) (result, error) {
	if err := s.openCluster(ctx); err != nil {
		return result{}, err
	}
	first := s.cluster.starts.firstAfter(time.Time{})
	joined := make(chan error, 1)
	go func() { joined <- s.join(ctx, s.sizes.Nodes) }()
	err := s.cluster.makeNamespaces(ctx, s.sizes.deployments())
	if err == nil {
		err = s.planeDeploy(ctx, 0)
	}
	if err == nil {
		select {
		case <-first:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	r := result{Seconds: figure(time.Since(s.server.Began).Seconds())}
	return r, errors.Join(err, <-joined)
}

// planePods creates the other Deployments.
func (s *session) planePods(ctx context.Context) (result, error) {
	for i := 1; i < s.sizes.deployments(); i++ {
		if err := s.planeDeploy(ctx, i); err != nil {
			return result{}, err
		}
	}
	return result{}, s.cluster.settled(ctx, s.sizes.deployments()*s.sizes.Replicas)
}

// planeDeploy creates a Service and a Deployment.
func (s *session) planeDeploy(ctx context.Context, i int) error {
	if err := s.cluster.expose(ctx, i); err != nil {
		return err
	}
	return s.cluster.deploy(ctx, i, s.sizes.Replicas, "")
}
