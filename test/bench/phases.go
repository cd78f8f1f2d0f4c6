package main

import (
	"context"
	"os"
	"time"
)

// The names of phases that others or profiles refer to. Those that start a server begin with phaseStart.
const (
	phaseStart   = "start to /readyz"
	phaseWritten = "memory, pods created"
)

// The lines of a phase that measures memory, or a server without requests.
var (
	memoryRows = []row{rss, databaseRSS, anonymous}
	idleRows   = []row{idleCPU, idleDatabaseCPU}
)

// phases returns what is measured, in order.
func phases(n sizes) []phase {
	pods := get(podsPath)
	writes, gets, lists := []row{perSecond, cpuMicros, databaseCPU}, []row{perSecond, cpuMicros}, []row{p50, cpuMillis}
	return []phase{
		{phaseStart + ", empty", false, (*session).start, []row{seconds.with(true), startMillis, storedSize.of("binaries")}},
		{"memory just started", true, (*session).memory, memoryRows},
		{"create ConfigMap 1 KB, 1 client", true, create(configMaps("one"), 1, max(1, n.Writes/20)), []row{p50, cpuMicros}},
		{"create ConfigMap, 16 clients", true, create(configMaps("few"), 16, max(1, n.Writes/2)), writes},
		{"create ConfigMap, 64 clients", true, create(configMaps("many"), 64, n.Writes), writes},
		{"update ConfigMap (PUT), 64 clients", true, replace(configMaps("many"), 64, n.Writes, 1), writes},
		{"get, 16 clients", true, read(configMaps("many"), 16, n.Writes, n.Gets), gets},
		{"renew a Lease (PUT), 64 clients", false, renewLeases(64, max(1, n.Writes/2)), []row{cpuMicros}},
		{"create Event, 16 clients", false, create(events, 16, max(1, n.Writes/2)), []row{cpuMicros}},
		{"strategic merge patch of a Deployment", false, patchDeployments(16, max(1, n.Writes/4)), []row{cpuMicros}},
		{"server-side apply of a Deployment", false, applyDeployments(16, max(1, n.Writes/4)), []row{cpuMicros}},
		{"create custom resource 1.1 KB", false, createCertificates(16), []row{cpuMicros}},
		{"list all custom resources, JSON", false, list(get(certificates.collection), 1, n.Lists), []row{cpuMillis, answerSize}},
		{"create Pod 4.8 KB, 32 clients", true, createPods(32), []row{perSecond, cpuMicros, length}},
		{phaseWritten, true, (*session).memory, memoryRows},
		{"list all pods, protobuf, the first and more", true, listFromCold(pods.as(mediaProtobuf), n.Lists),
			[]row{firstMillis.of("list all pods, protobuf, first after they were created"), p50.of("list all pods, protobuf, the first and more"), cpuMillis}},
		{"list all pods, JSON", true, list(pods, 1, n.Lists), []row{p50, cpuMillis, answerSize}},
		{"list all pods, JSON, gzip", false, list(pods.gzip(), 1, n.Lists), []row{cpuMillis, answerSize}},
		{"list all pods as Table", false, list(pods.as(mediaTable), 1, n.Lists), lists},
		{"list all pods in chunks of 500", false, walk(pods, 500, n.Pods, n.Lists), lists},
		{"label selector, 1 pod of 50", false, list(get(labelled(podsPath, selectedLabel)), 1, 20*n.Lists), lists},
		{"field selector spec.nodeName, 1 pod of 200", false, list(get(onNode(0)), 1, 40*n.Lists), lists},
		{"4 clients list all pods at once, JSON", true, list(pods, 4, 4*max(1, n.Lists/2)), []row{cpuMillis}},
		{"streaming list of all pods, JSON", false, streamPods(mediaJSON, n.Lists), lists},
		{"streaming list of all pods, protobuf", false, streamPods(mediaProtobufWatch, n.Lists), lists},
		{"memory after lists", true, (*session).memory, memoryRows},
		statusPhase(n),
		watchPhase,
		{"without requests, directly after all that", true, (*session).unused, idleRows},
		{"idle", true, (*session).idle, idleRows},
		{"database", false, (*session).database, []row{storedSize}},
		{phaseStart + ", all of this stored", false, (*session).restart, []row{seconds.with(true), startMillis}},
		{"list all pods, protobuf, first after a restart", false, list(pods.as(mediaProtobuf), 1, 1), []row{cpuMillis}},
	}
}

// statusPhase and watchPhase measure watches that report changes.
func statusPhase(n sizes) phase {
	return phase{"update a pod's status, each node's pods watched", false, updateStatus(max(1, n.Writes/4)), []row{p50ToEvent, cpuMicros}}
}

var watchPhase = phase{"event delivered to one of many watchers", true, watchConfigMaps(0),
	[]row{p50ToEvent, delivery, cpuMicros.of("the same, with its share of the writes")}}

// start reports how long the server took to start and how large its binaries are, and creates the namespace for the load, whose cost
// is not measured.
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
	cpu, _, err := s.cpu()
	return result{Seconds: figure(s.server.StartUp.Seconds()), CPU: microseconds(cpu - s.server.BeganAt)}, err
}

// restart restarts the server on its stored state, reports how long that took, and gives it time to finish its start-up work.
func (s *session) restart(ctx context.Context) (result, error) {
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
	all, database, err := s.server.memory()
	return result{RSS: mebibytes(all.RSS), DatabaseRSS: mebibytes(database.RSS), Anonymous: mebibytes(all.Anonymous)}, err
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
