package main

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// suite is a set of phases that one command runs.
type suite struct {
	name   string // of the command; "" if none is given
	phases func(sizes) []phase
	sizes  func(*sizes) // changes the defaults, unless nil
	plane  plane
}

var suites = []suite{
	{name: "", phases: phases},
	{name: "size", phases: sizePhases},
	{name: "watches", phases: watchesPhases},
	{name: "busy", phases: busyPhases},
	{name: "transactions", phases: transactionPhases},
	// An hour includes what a server does only occasionally.
	{name: "wear", phases: wearPhases, sizes: func(s *sizes) { s.Duration = time.Hour }},
	{name: "history", phases: historyPhases},
	{name: "churn", phases: churnPhases},
	{name: "clients", phases: clientsPhases},
	{name: "control-plane", phases: planePhases, plane: plane{runs: true}, sizes: func(s *sizes) {
		s.Nodes, s.Pods, s.Replicas, s.Idle = 10, 100, 10, time.Minute
	}},
	// A server has time to free what a start took.
	{name: "definitions", phases: definitionPhases, sizes: func(s *sizes) { s.Rest = 20 * time.Second }},
	{name: "large-objects", phases: largePhases, sizes: func(s *sizes) { s.Customs, s.Rest = 10_000, 20*time.Second }},
	{name: "finished", phases: finishedPhases, sizes: func(s *sizes) { s.Pods = 60_000 }},
	{name: "fleet", phases: fleetPhases, plane: plane{clusters: true}, sizes: func(s *sizes) { s.Objects = 10_000 }},
	// Kubernetes' SLOs, as far as a small machine can simulate them: as many pods per node, and as many that start or end per second, as
	// Kubernetes itself is tested with.
	{name: "scale", phases: scalePhases, plane: plane{runs: true, nodes: true, replicas: true, retention: true}, sizes: func(s *sizes) {
		s.Nodes, s.Pods, s.Retention = 1000, 30_000, 30*time.Second
	}},
}

// phase is one measurement. Phases run in the order of the list, since later ones read what earlier ones wrote.
type phase struct {
	name  string
	floor bool // it makes sense with canned responses
	run   operation
	shown []row // the lines of the table
}

// operation is the body of a phase.
type operation = func(*session, context.Context) (result, error)

// plane is what servers have in addition to the API.
type plane struct {
	runs     bool // controllers and a scheduler: in sqube's process, or as programs alongside kube-apiserver
	nodes    bool // nodes, each with its own token
	replicas bool // on Postgres, a second server on the same database

	clusters  bool // that it hosts; only sqube has them
	retention bool // versions are kept for as long as the sizes say
}

// servers is how many sqube servers there are on an engine.
func (p plane) servers(engine string) int {
	if p.replicas && engine == "postgres" {
		return 2
	}
	return 1
}

// suiteOf returns the suite of a command.
func suiteOf(command string) (suite, error) {
	for _, s := range suites {
		if s.name == command {
			return s, nil
		}
	}
	return suite{}, fmt.Errorf("unexpected argument %q; see --help", command)
}

// rows are the lines of the suite's table. The first one of a phase has the phase's name, unless it has another label.
func (s suite) rows() (all []row) {
	for _, p := range s.phases(defaultSizes) {
		for i, r := range p.shown {
			r.phase = p.name
			if i == 0 {
				r.work = cmp.Or(r.work, p.name)
			}
			all = append(all, r)
		}
	}
	return all
}
