package main

import (
	"context"
	"os"
	"time"
)

// The names of the phases, as the table refers to them.
const (
	phaseStart      = "start"
	phaseFresh      = "memory just started"
	phaseCreate1    = "create ConfigMap, 1 client"
	phaseCreate16   = "create ConfigMap, 16 clients"
	phaseCreate64   = "create ConfigMap, 64 clients"
	phaseUpdate     = "update ConfigMap, 64 clients"
	phaseGet        = "get ConfigMap, 16 clients"
	phasePods       = "create Pod, 32 clients"
	phaseLoaded     = "memory loaded"
	phaseListJSON   = "list pods, JSON"
	phaseListProto  = "list pods, protobuf"
	phaseListTable  = "list pods, Table"
	phaseListChunks = "list pods, chunks of 500"
	phaseSelector   = "list pods, label selector"
	phaseListFour   = "list pods, 4 clients at once"
	phaseAfterLists = "memory after lists"
	phaseWatch      = "watch"
	phaseIdle       = "idle"
	phaseDatabase   = "database"
)

// settle is how long a server may finish what it has begun before it is observed without load. Nothing tells from
// outside when it has.
const settle = 2 * time.Second

// phases returns what is measured, in its order.
func phases(n sizes) []phase {
	return []phase{
		{phaseStart, false, (*session).start},
		{phaseFresh, true, (*session).memory},
		{phaseCreate1, true, createConfigMaps("one", 1, max(1, n.Writes/20))},
		{phaseCreate16, true, createConfigMaps("few", 16, max(1, n.Writes/2))},
		{phaseCreate64, true, createConfigMaps("many", 64, n.Writes)},
		{phaseUpdate, true, updateConfigMaps("many", 64, n.Writes)},
		{phaseGet, true, getConfigMaps("many", 16, n.Gets)},
		{phasePods, true, createPods(32)},
		{phaseLoaded, true, (*session).memory},
		{phaseListJSON, true, listPods(mediaJSON, "", 1, n.Lists)},
		{phaseListProto, true, listPods(mediaProtobuf, "", 1, n.Lists)},
		{phaseListTable, false, listPods(mediaTable, "", 1, n.Lists)},
		{phaseListChunks, false, walkPods(500, max(1, n.Lists/2))},
		{phaseSelector, false, listPods(mediaJSON, selectedLabel, 1, 5*n.Lists)},
		{phaseListFour, true, listPods(mediaJSON, "", 4, 4*max(1, n.Lists/2))},
		{phaseAfterLists, true, (*session).memory},
		{phaseWatch, false, (*session).watch},
		{phaseIdle, true, (*session).idle},
		{phaseDatabase, false, (*session).database},
	}
}

// start reports how long the server took to start and how large its binaries are, both unknown of one that ran already.
// Nothing of the namespace for the load falls into a measurement.
func (s *session) start(ctx context.Context) (result, error) {
	r := result{Seconds: figure(s.server.StartUp.Seconds())}
	for _, path := range s.server.Binaries {
		info, err := os.Stat(path)
		if err != nil {
			return r, err
		}
		r.Sizes = append(r.Sizes, megabytes(info.Size()))
	}
	return r, nil
}

// memory reports what the server holds once it has settled.
func (s *session) memory(ctx context.Context) (result, error) {
	if err := wait(ctx, settle); err != nil {
		return result{}, err
	}
	m, err := readMemory(s.server.PIDs)
	return result{RSS: mebibytes(m.RSS), Anonymous: mebibytes(m.Anonymous)}, err
}

// idle reports what the server uses when nobody asks it for anything.
func (s *session) idle(ctx context.Context) (result, error) {
	if err := wait(ctx, settle); err != nil {
		return result{}, err
	}
	var m sample
	err := s.observe(&m, func() error { return wait(ctx, s.sizes.Idle) })
	return result{
		Seconds:         figure(m.wall.Seconds()),
		IdleCPU:         figure(100 * m.cpu.Seconds() / m.wall.Seconds()),
		IdleDatabaseCPU: figure(100 * m.databaseCPU.Seconds() / m.wall.Seconds()),
	}, err
}

// database reports the size of what the server has stored.
func (s *session) database(ctx context.Context) (result, error) {
	if s.server.DataSize == nil {
		return result{}, nil
	}
	n, err := s.server.DataSize()
	return result{Sizes: []figure{megabytes(n)}}, err
}

// wait passes the time that a measurement takes, unless the run ends before.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
