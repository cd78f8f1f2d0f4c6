package main

import "fmt"

// suite is a set of phases that one command runs, and the table of their figures.
type suite struct {
	name   string // of the command; "" if none is given
	phases func(sizes) []phase
	rows   []row
	sizes  *sizes // the defaults, if they are its own
	plane  plane
}

var suites = []suite{
	{name: "", phases: phases, rows: rows},
	{name: "size", phases: sizePhases, rows: sizeRows},
	{name: "crowd", phases: crowdPhases, rows: crowdRows},
	{name: "watches", phases: watchesPhases, rows: watchesRows},
	{name: "wear", phases: wearPhases, rows: wearRows, sizes: &wearSizes},
	{name: "history", phases: historyPhases, rows: historyRows},
	{name: "control-plane", phases: planePhases, rows: planeRows, sizes: &planeSizes, plane: plane{runs: true}},
	{name: "namespaces", phases: namespacePhases, rows: namespaceRows, plane: plane{runs: true}},
	{name: "definitions", phases: definitionPhases, rows: definitionRows, sizes: &definitionSizes},
	{name: "scale", phases: scalePhases, rows: scaleRows, sizes: &scaleSizes, plane: plane{runs: true, nodes: true, replicas: true, retention: true}},
}

// plane is what servers have in addition to the API.
type plane struct {
	runs     bool // controllers and a scheduler: in sqube's process, or as programs alongside kube-apiserver
	nodes    bool // nodes, each with its own token
	replicas bool // on Postgres, a second server on the same database

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
