package main

import (
	"context"
	"os"
	"time"
)

// The names of the phases, as the table refers to them.
const (
	phaseStart       = "start"
	phaseFresh       = "memory just started"
	phaseCreate1     = "create ConfigMap, 1 client"
	phaseCreate16    = "create ConfigMap, 16 clients"
	phaseCreate64    = "create ConfigMap, 64 clients"
	phaseUpdate      = "update ConfigMap, 64 clients"
	phaseGet         = "get ConfigMap, 16 clients"
	phaseLease       = "renew Lease, 64 clients"
	phaseEvent       = "create Event, 16 clients"
	phasePatch       = "patch Deployment, 16 clients"
	phaseApply       = "apply Deployment, 16 clients"
	phaseCustom      = "create custom resource, 16 clients"
	phaseListCustom  = "list custom resources"
	phasePods        = "create Pod, 32 clients"
	phaseLoaded      = "memory loaded"
	phaseListProto   = "list pods, protobuf"
	phaseListJSON    = "list pods, JSON"
	phaseListGzip    = "list pods, JSON, gzip"
	phaseListTable   = "list pods, Table"
	phaseListChunks  = "list pods, chunks of 500"
	phaseSelector    = "list pods, label selector"
	phaseField       = "list pods, field selector"
	phaseListFour    = "list pods, 4 clients at once"
	phaseStreamJSON  = "streaming list of pods, JSON"
	phaseStreamProto = "streaming list of pods, protobuf"
	phaseAfterLists  = "memory after lists"
	phaseStatus      = "update status of pods, each node watched"
	phaseWatch       = "watch"
	phasePaced       = "watch, 50 events a second"
	phaseSettling    = "directly after all that"
	phaseIdle        = "idle"
	phaseDatabase    = "database"
	phaseRestart     = "restart"
	phaseRestarted   = "list pods, protobuf, restarted"
)

// phases returns what is measured, in order.
func phases(n sizes) []phase {
	pods := get(podsPath)
	return []phase{
		{phaseStart, false, (*session).start},
		{phaseFresh, true, (*session).memory},
		{phaseCreate1, true, create(configMaps("one"), 1, max(1, n.Writes/20))},
		{phaseCreate16, true, create(configMaps("few"), 16, max(1, n.Writes/2))},
		{phaseCreate64, true, create(configMaps("many"), 64, n.Writes)},
		{phaseUpdate, true, replace(configMaps("many"), 64, n.Writes, 1)},
		{phaseGet, true, read(configMaps("many"), 16, n.Writes, n.Gets)},
		{phaseLease, false, renewLeases(64, max(1, n.Writes/2))},
		{phaseEvent, false, create(events, 16, max(1, n.Writes/2))},
		{phasePatch, false, patchDeployments(16, max(1, n.Writes/4))},
		{phaseApply, false, applyDeployments(16, max(1, n.Writes/4))},
		{phaseCustom, false, createCertificates(16)},
		{phaseListCustom, false, list(get(certificates.collection), 1, n.Lists)},
		{phasePods, true, createPods(32)},
		{phaseLoaded, true, (*session).memory},
		{phaseListProto, true, listFromCold(pods.as(mediaProtobuf), n.Lists)},
		{phaseListJSON, true, list(pods, 1, n.Lists)},
		{phaseListGzip, false, list(pods.gzip(), 1, n.Lists)},
		{phaseListTable, false, list(pods.as(mediaTable), 1, n.Lists)},
		{phaseListChunks, false, walk(podsPath, 500, n.Pods, n.Lists)},
		{phaseSelector, false, list(get(labelled(podsPath, selectedLabel)), 1, 20*n.Lists)},
		{phaseField, false, list(get(onNode(0)), 1, 40*n.Lists)},
		{phaseListFour, true, list(pods, 4, 4*max(1, n.Lists/2))},
		{phaseStreamJSON, false, streamPods(mediaJSON, n.Lists)},
		{phaseStreamProto, false, streamPods(mediaProtobufWatch, n.Lists)},
		{phaseAfterLists, true, (*session).memory},
		{phaseStatus, false, updateStatus(max(1, n.Writes/4))},
		{phaseWatch, true, (*session).watchAll},
		{phaseSettling, true, (*session).unused},
		{phaseIdle, true, (*session).idle},
		{phaseDatabase, false, (*session).database},
		{phaseRestart, false, (*session).restart},
		{phaseRestarted, false, list(pods.as(mediaProtobuf), 1, 1)},
	}
}

// start reports how long the server took to start and how large its binaries are, both unknown for a server that was already
// running, and creates the namespace for the load, whose cost is not measured.
func (s *session) start(ctx context.Context) (result, error) {
	r, err := s.started()
	if err != nil {
		return r, err
	}
	for _, path := range s.server.Binaries {
		info, err := os.Stat(path)
		if err != nil {
			return r, err
		}
		r.Sizes = append(r.Sizes, megabytes(info.Size()))
	}
	return r, s.makeNamespace(ctx)
}

// started reports how long the last start took, and the CPU time that the server has used since it began.
func (s *session) started() (result, error) {
	if s.server.launch == nil {
		return result{}, nil
	}
	cpu, _, err := s.cpu()
	return result{Seconds: figure(s.server.StartUp.Seconds()), CPU: microseconds(cpu)}, err
}

// restart restarts the server on its stored state, reports how long that took, and gives it time to finish its start-up work. A
// server that was already running keeps running.
func (s *session) restart(ctx context.Context) (result, error) {
	if s.server.launch == nil {
		return result{}, nil
	}
	if err := s.server.Restart(ctx); err != nil {
		return result{}, err
	}
	r, err := s.started()
	if err != nil {
		return r, err
	}
	return r, wait(ctx, s.sizes.Rest)
}

// memory reports the server's memory after giving it time to finish what it had begun. When that is done is not visible from
// outside.
func (s *session) memory(ctx context.Context) (result, error) {
	if err := wait(ctx, s.sizes.Rest); err != nil {
		return result{}, err
	}
	m, err := readMemory(s.server.PIDs)
	return result{RSS: mebibytes(m.RSS), Anonymous: mebibytes(m.Anonymous)}, err
}

// idle reports what the server uses without requests, after giving it time to finish what it had begun.
func (s *session) idle(ctx context.Context) (result, error) {
	if err := wait(ctx, s.sizes.Rest); err != nil {
		return result{}, err
	}
	return s.unused(ctx)
}

// unused reports what the server uses without requests.
func (s *session) unused(ctx context.Context) (result, error) {
	before, err := s.written()
	if err != nil {
		return result{}, err
	}
	var m sample
	if err := s.observe(&m, func() error { return wait(ctx, s.sizes.Idle) }); err != nil {
		return result{}, err
	}
	after, err := s.written()
	return result{
		Seconds:         figure(m.wall.Seconds()),
		IdleCPU:         figure(100 * m.cpu.Seconds() / m.wall.Seconds()),
		IdleDatabaseCPU: figure(100 * m.databaseCPU.Seconds() / m.wall.Seconds()),
		WrittenMinute:   figure(float64(after-before) / 1000 / m.wall.Minutes()),
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

// wait waits for the duration of a measurement, unless the run ends first.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
