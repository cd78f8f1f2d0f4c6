package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

// The names of phases whose figures others are divided by.
const (
	phaseFleetCalm  = "one write a second in each"
	phaseFleetAlone = "writes to a cluster, before it is forked"
)

// fleetPhases measure a server that hosts clusters.
func fleetPhases(n sizes) []phase {
	creates := []row{perSecond, p50, p99, cpuMillis, databaseCPU}
	return []phase{
		{phaseStart, false, (*session).start, nil},
		{"restart without clusters", false, (*session).restartBare, nil},
		{"create clusters, 16 clients", false, (*session).createAsleep, creates},
		{"restart with these asleep", false, (*session).restartAsleep, []row{seconds, rssEach, anonymousEach, goroutinesEach, filesEach}},
		{"idle, these asleep", false, (*session).idle, idleRows},
		{"create clusters until they answer, 16 clients", false, (*session).createAwake, creates},
		{phaseFleetCalm, false, (*session).writeCalmly, []row{perSecond, p50, p99, cpuMicros, databaseCPU}},
		{"idle, these awake", false, (*session).idleAwake, []row{idleCPUEach, liveEach, rssEach, anonymousEach, goroutinesEach, filesEach}},
		{"the same while another cluster floods", false, (*session).writeBesideFlood, []row{p50, p99, p99.dividedBy(phaseFleetCalm, "p99, of that without it"), floodPerSecond}},
		{phaseFleetAlone, false, (*session).writeUnforked, []row{p99}},
		{"fork it until the fork answers", false, (*session).fork, []row{p50, longest, cpuMillis, databaseCPU}},
		{"writes to it meanwhile", false, (*session).writtenMeanwhile, []row{p99, p99.dividedBy(phaseFleetAlone, "p99, of that before")}},
		{"wake it, all the objects", false, wakeAlone(1), []row{p50, longest, cpuMillis}},
		{"wake one with a tenth of the objects", false, wakeAlone(fleetTenth), []row{p50, longest, cpuMillis}},
		{"wake many of these at once", false, (*session).wakeMany, []row{p50, p99, longest, cpuMillis, databaseCPU}},
	}
}

const (
	// fleetClients is how many clients create clusters at once.
	fleetClients = 16
	// fleetTenth divides the objects of the large cluster: those that wake have so many.
	fleetTenth = 10
	// fleetNap is for how long nobody has requested anything when a cluster of the phases that wake clusters falls asleep.
	fleetNap = "1s"

	clustersPath = "/apis/fleet.sqube.io/v1alpha1/namespaces/" + namespace + "/clusters"
)

// Figures of clusters.
var (
	goroutinesEach = row{unit: "goroutines each", value: func(r result) figure { return r.GoroutinesEach }}
	filesEach      = row{unit: "open files each", value: func(r result) figure { return r.FilesEach }}
	idleCPUEach    = row{unit: "CPU each, % of a core", value: func(r result) figure { return r.IdleCPUEach }}
	floodPerSecond = row{unit: "requests of that per s", value: func(r result) figure { return r.Writes }}
)

// fleetFigures are what phases of clusters measure beside a result's other figures.
type fleetFigures struct {
	GoroutinesEach figure `json:"goroutines_each,omitempty"`
	FilesEach      figure `json:"open_files_each,omitempty"`
	IdleCPUEach    figure `json:"idle_cpu_percent_each,omitempty"`
}

// fleetRun is what the phases of clusters share.
type fleetRun struct {
	bare     held // without clusters, or without those that are awake
	awake    []*client
	original *client // of the large cluster
	beside   result  // the writes to it while it was forked
}

// held is what a process holds.
type held struct {
	heldMemory
	goroutines, files int
}

// goroutinesMetric is a line of /metrics.
var goroutinesMetric = regexp.MustCompile(`(?m)^go_goroutines (\d+)`)

// holds returns what the server holds after it has had time to finish what it had begun.
func (s *session) holds(ctx context.Context) (h held, err error) {
	if h.heldMemory, err = s.settledMemory(ctx); err != nil {
		return h, err
	}
	metrics, err := s.ask(ctx, get("/metrics"))
	if err != nil {
		return h, err
	}
	line := goroutinesMetric.FindSubmatch(metrics)
	if line == nil {
		return h, errors.New("/metrics has no go_goroutines")
	}
	if h.goroutines, err = strconv.Atoi(string(line[1])); err != nil {
		return h, err
	}
	for _, pid := range s.server.PIDs {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return h, err
		}
		h.files += len(open)
	}
	return h, nil
}

// each returns what each of n clusters adds to what the server held before.
func (h held) each(before held, n int) result {
	kib := func(bytes int64) figure { return figure(bytes) / 1024 / figure(n) }
	return result{
		LiveEach: kib(h.live - before.live), RSSEach: kib(h.RSS - before.RSS), AnonymousEach: kib(h.Anonymous - before.Anonymous),
		fleetFigures: fleetFigures{
			GoroutinesEach: figure(h.goroutines-before.goroutines) / figure(n), FilesEach: figure(h.files-before.files) / figure(n),
		},
	}
}

// restartBare restarts the server, so that what it holds is comparable with what it holds after a restart with clusters.
func (s *session) restartBare(ctx context.Context) (result, error) {
	r, err := s.restart(ctx)
	if err != nil {
		return r, err
	}
	s.fleet.bare, err = s.holds(ctx)
	return r, err
}

// clusterBody returns a Cluster's JSON.
func clusterBody(name, spec string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"fleet.sqube.io/v1alpha1","kind":"Cluster","metadata":{"name":%q},"spec":{%s}}`, name, spec)
}

// made creates a cluster, and returns when it has a database.
func made(ctx context.Context, c *client, name, spec string) error {
	if err := c.do(ctx, post(clustersPath, clusterBody(name, spec))); err != nil {
		return err
	}
	return reached(ctx, c, name, func(s clusterStatus) bool { return s.Phase == "Asleep" || s.Phase == "Awake" })
}

// clusterStatus is what the benchmark reads of a cluster's status.
type clusterStatus struct {
	Phase, Message string
	Wakes          int
}

// reached returns when a cluster is as is says.
func reached(ctx context.Context, c *client, name string, is func(clusterStatus) bool) error {
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, untilPause) {
		if err := c.do(ctx, get(clustersPath+"/"+name)); err != nil {
			return err
		}
		var cluster struct{ Status clusterStatus }
		if err := json.Unmarshal(c.answer.Bytes(), &cluster); err != nil {
			return err
		}
		switch {
		case is(cluster.Status):
			return nil
		case cluster.Status.Phase == "Failed":
			return fmt.Errorf("cluster %s: %s", name, cluster.Status.Message)
		}
		if err := wait(ctx, pause); err != nil {
			return fmt.Errorf("cluster %s is %q: %w", name, cluster.Status.Phase, err)
		}
	}
}

// enter returns a client of a cluster, which wakes up for that.
func enter(ctx context.Context, c *client, name string) (*client, error) {
	if err := c.do(ctx, post(clustersPath+"/"+name+"/kubeconfig", []byte("{}"))); err != nil {
		return nil, err
	}
	var credentials struct{ Status struct{ Kubeconfig string } }
	if err := json.Unmarshal(c.answer.Bytes(), &credentials); err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(credentials.Status.Kubeconfig))
	if err != nil {
		return nil, err
	}
	return (&dialer{config: config}).dial(ctx)
}

// createAsleep creates clusters that nobody asks.
func (s *session) createAsleep(ctx context.Context) (result, error) {
	return s.load(ctx, fleetClients, s.sizes.Clusters, func(ctx context.Context, c *client, i int) error {
		return made(ctx, c, fmt.Sprintf("asleep-%05d", i), "")
	})
}

// restartAsleep restarts the server, and returns what each cluster that sleeps takes.
func (s *session) restartAsleep(ctx context.Context) (result, error) {
	started, err := s.restart(ctx)
	if err != nil {
		return started, err
	}
	now, err := s.holds(ctx)
	if err != nil {
		return result{}, err
	}
	r := now.each(s.fleet.bare, s.sizes.Clusters)
	s.fleet.bare, r.Seconds = now, started.Seconds
	return r, nil
}

// createAwake creates clusters, and asks each for something. They stay awake.
func (s *session) createAwake(ctx context.Context) (result, error) {
	s.fleet.awake = make([]*client, s.sizes.Awake)
	return s.load(ctx, fleetClients, s.sizes.Awake, func(ctx context.Context, c *client, i int) (err error) {
		name := fmt.Sprintf("awake-%04d", i)
		if err := made(ctx, c, name, `"sleep":{"after":"0s"}`); err != nil {
			return err
		}
		if s.fleet.awake[i], err = enter(ctx, c, name); err != nil {
			return err
		}
		return s.fleet.awake[i].do(ctx, post(hostedMaps.collection, hostedMaps.body(hostedMaps.name(0), 0)))
	})
}

// hostedMaps are ConfigMaps in a namespace that each cluster has.
var hostedMaps = func() kind {
	k := configMaps("hosted")
	k.collection = "/api/v1/namespaces/default/configmaps"
	return k
}()

// writeOnce has the client of each cluster write once a second for the duration, each at another moment of the second.
func (s *session) writeOnce(ctx context.Context, tenants []*client, duration time.Duration) (result, error) {
	seconds := int(duration.Seconds())
	m := sample{latencies: make([]time.Duration, seconds*len(tenants))}
	failed := make([]error, len(tenants))
	err := s.observe(&m, func() error {
		start := time.Now()
		var writing sync.WaitGroup
		for i, c := range tenants {
			writing.Go(func() {
				for k := range seconds {
					due := start.Add(time.Duration(k)*time.Second + time.Duration(i)*time.Second/time.Duration(len(tenants)))
					failed[i] = wait(ctx, time.Until(due))
					if failed[i] == nil {
						failed[i] = c.do(ctx, put(hostedMaps.path(0), hostedMaps.body(hostedMaps.name(0), k+1)))
					}
					if failed[i] != nil {
						return
					}
					m.latencies[i*seconds+k] = time.Since(due)
				}
			})
		}
		writing.Wait()
		return errors.Join(failed...)
	})
	return m.result(len(tenants), len(m.latencies)), err
}

// writeCalmly measures all clusters that are awake, with a client each.
func (s *session) writeCalmly(ctx context.Context) (result, error) {
	if _, err := s.writeOnce(ctx, s.fleet.awake, time.Second); err != nil { // the first write makes what a cluster needs for writes
		return result{}, err
	}
	return s.writeOnce(ctx, s.fleet.awake, s.sizes.Duration)
}

// idleAwake returns what each cluster that is awake takes while nobody asks.
func (s *session) idleAwake(ctx context.Context) (result, error) {
	now, err := s.holds(ctx)
	if err != nil {
		return result{}, err
	}
	r := now.each(s.fleet.bare, s.sizes.Awake)
	unused, err := s.unused(ctx)
	r.Seconds, r.IdleCPU, r.IdleDatabaseCPU, r.IdleCPUEach = unused.Seconds, unused.IdleCPU, unused.IdleDatabaseCPU, unused.IdleCPU/figure(s.sizes.Awake)
	return r, err
}

// closeFleet closes the clients of clusters.
func (s *session) closeFleet() {
	all := s.fleet.awake
	if s.fleet.original != nil {
		all = append(all, s.fleet.original)
	}
	for _, c := range all {
		if c != nil {
			clients{c}.close()
		}
	}
}
