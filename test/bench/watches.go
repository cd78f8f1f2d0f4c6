package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
)

// watchesPhases measure what watches cost while something happens, and while nothing does.
func watchesPhases(n sizes) []phase {
	// Each phase leaves its watches open for the next one.
	writes := max(1, n.Writes/4)
	const alone, idle = "update, no watches", "idle watches, "
	return []phase{
		{phaseStart, false, (*session).start, nil},
		{"create Pod, 32 clients", false, createPods(32), nil},
		statusPhase(n),
		watchPhase,
		{"event to one of them while 50 objects are created a second", true, watchConfigMaps(50), []row{p50ToEvent, delivery}},
		{"create ConfigMap, 64 clients", false, create(unwatched, 64, writes), nil},
		{alone + ", first time", false, replace(unwatched, 16, writes, 1), nil},
		{alone, false, replace(unwatched, 16, writes, 2), []row{cpuMicros}},
		{idle + "100 to a connection", false, idleWatches(maxStreams), []row{liveEach}},
		{"update that concerns no watch", false, replace(unwatched, 16, writes, 3), []row{cpuMicros, cpuMicros.dividedBy(alone, "of that without watches")}},
		{idle + "each on its own connection", false, idleWatches(1), []row{liveEach}},
	}
}

// unwatched are ConfigMaps that no watch selects.
var unwatched = configMaps("unwatched")

// maxStreams is how many requests servers allow per HTTP/2 connection.
const maxStreams = 100

// idleWatches opens watches, each of an object that does not exist, and reports what memory each takes.
func idleWatches(perConnection int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		s.closeWatches()
		before, err := s.settledMemory(ctx)
		if err != nil {
			return result{}, err
		}
		paths := make([]string, s.sizes.Idlers)
		for i := range paths {
			paths[i] = watchOne(configMaps("absent"), i) + "&allowWatchBookmarks=true"
		}
		s.opened, err = s.openWatches(context.Background(), configMaps("absent").collection, paths, connectionsOf(len(paths), perConnection))
		if err != nil {
			return result{}, err
		}
		after, err := s.settledMemory(ctx)
		each := func(bytes int64) figure { return figure(bytes) / 1024 / figure(len(paths)) }
		return result{
			LiveEach:      each(after.live - before.live),
			AnonymousEach: each(after.Anonymous - before.Anonymous), RSSEach: each(after.RSS - before.RSS),
		}, err
	}
}

// heldMemory is a server's memory, and how much of that its API server's objects and stacks take after garbage collections.
type heldMemory struct {
	memory
	live int64
}

// memoryMetric is a line of /metrics about Go's memory.
var memoryMetric = regexp.MustCompile(`(?m)^go_memstats_(?:heap_alloc|stack_inuse)_bytes (\S+)$`)

// settledMemory reads the memory of a server that has had time to finish what it had begun, and that has collected its garbage. Each
// collection halves a stack of which little is in use.
func (s *session) settledMemory(ctx context.Context) (m heldMemory, err error) {
	if err := wait(ctx, s.sizes.Rest); err != nil {
		return m, err
	}
	collect := get("/debug/pprof/heap?gc=1")
	metrics, err := s.ask(ctx, collect, collect, collect, collect, get("/metrics"))
	if err != nil {
		return m, err
	}
	found := memoryMetric.FindAllSubmatch(metrics, -1)
	if len(found) != 2 {
		return m, fmt.Errorf("%s has %d metrics of Go's memory, not 2", s.server.Name, len(found))
	}
	for _, line := range found {
		n, parseErr := strconv.ParseFloat(string(line[1]), 64)
		err = cmp.Or(err, parseErr)
		m.live += int64(n)
	}
	if err != nil {
		return m, err
	}
	m.memory, err = readMemory(s.server.PIDs)
	return m, err
}
