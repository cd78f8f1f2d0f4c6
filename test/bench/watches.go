package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
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
	m.memory, _, err = s.server.memory()
	return m, err
}

// watchConfigMaps measures watches of all ConfigMaps that report new ones: those that come at a pace per second, which the server has
// delivered before the next one comes, or as many as it can take for 0.
func watchConfigMaps(pace int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		k := configMaps("watched-" + strconv.Itoa(pace))
		return fanOut{
			collection:  k.collection,
			watches:     slices.Repeat([]string{k.collection}, s.sizes.Watchers),
			connections: s.sizes.Watchers,
			expected:    func(int) int { return s.sizes.Events },
			changes:     s.sizes.Events,
			pace:        pace,
			change:      func(i int) request { return post(k.collection, k.body(k.name(i), 0)) },
			unwatched:   func(i int) request { return post(k.collection, k.body("un"+k.name(i), 0)) },
			mark:        `"name":"` + k.prefix + "-",
		}.run(s, ctx)
	}
}

// watchesPerConnection is less than servers allow per HTTP/2 connection: kube-apiserver allows 100.
const watchesPerConnection = 50

// updateStatus updates the status of pods while each node's pods are watched, as by kubelets.
func updateStatus(updates int) operation {
	return func(s *session, ctx context.Context) (result, error) {
		watches := make([]string, s.sizes.Nodes)
		expected := make([]int, s.sizes.Nodes)
		for i := range watches {
			watches[i] = onNode(i)
		}
		pod := func(update int) int { return update % s.sizes.Pods }
		change := func(i int) request {
			body := fmt.Appendf(nil, `{"status":{"phase":"Running","podIP":"10.1.%d.%d","conditions":[`+
				`{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","message":"update-%06d"}]}}`, pod(i)/250%250, pod(i)%250, i)
			return patch(podsPath+"/"+podName(pod(i))+"/status", mediaStrategicPatch, body)
		}
		for i := range updates {
			expected[s.sizes.nodeOf(pod(i))]++
		}
		return fanOut{
			collection:  podsPath,
			watches:     watches,
			connections: connectionsOf(len(watches), watchesPerConnection),
			expected:    func(watch int) int { return expected[watch] },
			changes:     updates,
			change:      change,
			mark:        `"message":"update-`,
		}.run(s, ctx)
	}
}

// connectionsOf returns how many connections that many watches need, with so many on each.
func connectionsOf(watches, perConnection int) int {
	return (watches + perConnection - 1) / perConnection
}

// watchOne returns the path of a watch of the ith object alone.
func watchOne(k kind, i int) string {
	return k.collection + "?fieldSelector=" + url.QueryEscape("metadata.name="+k.name(i))
}

// fanOut are watches, and changes that they report.
type fanOut struct {
	collection  string
	watches     []string            // the collection's paths to watch, without "watch" and "resourceVersion"
	connections int                 // that carry the watches
	expected    func(watch int) int // how many of the changes a watch reports
	changes     int                 // how many there are
	change      func(i int) request // makes the ith
	unwatched   func(i int) request // makes a like change before there are watches; nil to measure none
	pace        int                 // changes per second; 0 for as many as the server can make
	mark        string              // what precedes a change's number, six digits, in its event
}

// fanOutWriters is the number of clients that make the changes.
const fanOutWriters = 4

// arrival is a received event.
type arrival struct {
	change int
	at     time.Time
}

// run opens the watches, makes the changes and waits until each watch has reported all of its changes. An operation is one
// event delivered to one watch. Its CPU includes the cost of the changes, which the same number of them without watches shows. The
// latency is from sending a change to its event.
func (f fanOut) run(s *session, ctx context.Context) (result, error) {
	senders, err := s.dialer.dialAll(ctx, fanOutWriters)
	if err != nil {
		return result{}, err
	}
	defer senders.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alone, sent := sample{}, make([]time.Time, f.changes)
	if f.unwatched != nil {
		if err := s.observe(&alone, func() error { return f.make(ctx, senders, f.unwatched, sent) }); err != nil {
			return result{}, err
		}
	}
	opened, err := s.openWatches(ctx, f.collection, f.watches, f.connections)
	if err != nil {
		return result{}, err
	}
	defer opened.close()

	arrivals := make([][]arrival, len(f.watches))
	var running sync.WaitGroup
	for i, stream := range opened.streams {
		running.Go(func() {
			var err error
			if arrivals[i], err = f.read(stream, f.expected(i)); err != nil {
				cancel(fmt.Errorf("watch of %s: %w", f.watches[i], err))
			}
		})
	}
	var m sample
	err = s.observe(&m, func() error {
		if err := f.make(ctx, senders, f.change, sent); err != nil {
			cancel(err)
		}
		running.Wait()
		return context.Cause(ctx)
	})
	if err != nil {
		return result{}, err
	}
	for _, of := range arrivals {
		for _, a := range of {
			m.latencies = append(m.latencies, a.at.Sub(sent[a.change]))
		}
	}
	r := m.result(len(f.watches), len(m.latencies))
	if f.unwatched != nil {
		r.Delivery = microseconds(m.cpu-alone.cpu) / figure(len(m.latencies))
	}
	return r, nil
}

// make makes all changes, and notes when it has sent each.
func (f fanOut) make(ctx context.Context, senders clients, change func(int) request, sent []time.Time) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	next := make(chan int)
	for _, c := range senders {
		running.Go(func() {
			for i := range next {
				r := change(i)
				sent[i] = time.Now()
				if err := c.do(ctx, r); err != nil {
					cancel(err)
				}
			}
		})
	}
	due := time.Now()
	for i := range sent {
		select {
		case next <- i:
		case <-ctx.Done():
		}
		if f.pace > 0 {
			if err := paced(ctx, &due, 1, f.pace); err != nil {
				cancel(err)
			}
		}
	}
	close(next)
	running.Wait()
	return context.Cause(ctx)
}

// read records when each event arrived and returns once it has them all. It finds a change's number in the event's text, since
// decoding would cost more CPU than the server's work that is measured.
func (f fanOut) read(stream io.Reader, expected int) (arrivals []arrival, err error) {
	const digits = 6
	events := newEventReader(stream, mediaJSON, 64<<10)
	mark := []byte(f.mark)
	seen := map[int]bool{}
	for len(arrivals) < expected {
		event, err := events.next()
		if err != nil {
			return nil, fmt.Errorf("it ended with %d events missing: %w", expected-len(arrivals), err)
		}
		_, rest, found := bytes.Cut(event, mark)
		if !found || len(rest) < digits {
			return nil, fmt.Errorf("an event of an unexpected object: %.300s", event)
		}
		i, err := strconv.Atoi(string(rest[:digits]))
		if err != nil || i >= f.changes || seen[i] {
			return nil, fmt.Errorf("a duplicate or unexpected event: %.300s", event)
		}
		seen[i] = true
		arrivals = append(arrivals, arrival{i, time.Now()})
	}
	return arrivals, nil
}

// openedWatches are watches over few connections.
type openedWatches struct {
	clients clients
	streams []io.ReadCloser
}

// close ends the watches. The errors of their streams do not matter.
func (o openedWatches) close() {
	for _, stream := range o.streams {
		_ = stream.Close()
	}
	o.clients.close()
}

// openWatches opens watches of paths of a collection from its current resourceVersion on.
func (s *session) openWatches(ctx context.Context, collection string, paths []string, connections int) (o openedWatches, err error) {
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	revision, err := s.newest(ctx, collection)
	if err != nil {
		return o, err
	}
	for i, path := range paths {
		if len(o.clients) < min(i+1, connections) { // one by one: servers close connections if many are idle
			c, err := s.dialer.dial(ctx)
			if err != nil {
				return o, err
			}
			o.clients = append(o.clients, c)
		}
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		// The response arrives once the server has started the watch.
		var response *http.Response
		if err := whenServed(ctx, retryAfter, func() (err error) {
			response, err = o.clients[i%connections].send(ctx, get(path+separator+"watch=1&resourceVersion="+string(revision)))
			return err
		}); err != nil {
			return o, err
		}
		o.streams = append(o.streams, response.Body)
	}
	return o, nil
}
