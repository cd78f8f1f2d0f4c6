package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// The phases of `bench scale`: a cluster grows to a tenth of its size, then to all of it. Each time it is first quiet, then pods start
// and end all the time. The name of a phase with a tenth ends in scaleTenth.
const (
	phaseScaleEmpty    = "no nodes"
	phaseScaleJoin     = "nodes join"
	phaseScaleGrow     = "Deployments are made"
	phaseScaleQuiet    = "no pods start"
	phaseScaleSteady   = "Deployments are restarted and resized"
	phaseScaleTakeover = "the server that leads is killed"
	phaseScaleAfter    = "Deployments are restarted and resized under the other server"
	phaseScaleStarts   = "objective: pods start, from creation to seen Running, within 5 s"
	phaseScaleObject   = "objective: API calls of one object, by the server's clock, within 1 s"
	phaseScaleSpace    = "objective: lists of a namespace within 5 s"
	phaseScaleAll      = "objective: lists of the cluster within 30 s"
	phaseScaleNodes    = "objective: API calls of nodes, by their clocks, within 1 s"
	phaseScaleDatabase = "database"

	scaleTenth = ", a tenth"
)

// part is the part of the cluster that there is while a phase is measured.
type part struct {
	suffix string // of the phases' names
	sizes
}

// parts returns a tenth of the cluster, and all of it.
func (s sizes) parts() []part {
	tenth := s
	tenth.Nodes, tenth.Pace = max(1, s.Nodes/10), max(1, s.Pace/10)
	tenth.Pods = max(1, s.deployments()/10) * s.Replicas
	return []part{{scaleTenth, tenth}, {"", s}}
}

func scalePhases(n sizes) []phase {
	phases := []phase{{phaseScaleEmpty, false, (*session).scaleEmpty, []row{serversRSS}}}
	for _, p := range n.parts() {
		quiet, steady := phaseScaleQuiet+p.suffix, phaseScaleSteady+p.suffix
		shown := slices.Clone(windowRows)
		if p.suffix == "" {
			shown = append(shown, nodeCPU.dividedBy(steady+scaleTenth, "CPU per node, over that with a tenth of them, of at most 1.2"),
				nodeMemory.dividedBy(steady+scaleTenth, "memory per node beyond that without nodes, over that with a tenth"),
				nodeRSS.dividedBy(steady+scaleTenth, "all memory per node, over that with a tenth"))
		}
		phases = append(phases,
			phase{phaseScaleJoin + p.suffix, false, p.join, nil},
			phase{phaseScaleGrow + p.suffix, false, p.grow, windowRows},
			phase{quiet, false, p.quiet, windowRows},
			phase{steady, false, p.steady, shown})
	}
	slowest := p99
	slowest.unit = "p99 ms of the slowest kind"
	return append(phases, []phase{
		{phaseScaleTakeover, false, (*session).scaleKill, []row{takeover, p99}},
		{phaseScaleAfter, false, (*session).scaleAfter, windowRows},
		{phaseScaleDatabase, false, (*session).scaleDatabase, []row{storedSize.with(false), databaseTimes}},
		{phaseScaleStarts, false, (*session).scaleStarts, []row{p50, p99, operations}},
		{phaseScaleObject, false, scaleCalls("", time.Second), []row{slowest, operations}},
		{phaseScaleSpace, false, scaleCalls("namespace", 5*time.Second), []row{slowest}},
		{phaseScaleAll, false, scaleCalls("cluster", 30*time.Second), []row{slowest}},
		{phaseScaleNodes, false, (*session).scaleNodes, []row{slowest, operations, failed}},
	}...)
}

// scaleRun is what phases leave for later ones.
type scaleRun struct {
	emptyMemory memory          // of the servers
	tenth       result          // of steady load with a tenth of the cluster
	calls       apiCalls        // while there was steady load
	starts      []time.Duration // meanwhile
	recent      []time.Duration // starts during the last phase
	killed      bool            // the first server
}

// scaleEmpty reports the memory of the servers without nodes.
func (s *session) scaleEmpty(ctx context.Context) (r result, err error) {
	if s.emptySize, err = s.server.DataSize(); err != nil {
		return r, err
	}
	if err := s.openCluster(ctx); err != nil {
		return r, err
	}
	lister, err := s.node(0, s.dialer.config.BearerToken).dial(ctx)
	if err != nil {
		return r, err
	}
	s.cluster.nodes.Go(func() { s.cluster.browse(s.cluster.background, lister, s.sizes.Duration/12) })
	if err := wait(ctx, s.sizes.Rest); err != nil {
		return r, err
	}
	s.scale.emptyMemory, _, err = s.server.memory()
	return result{RSS: mebibytes(s.scale.emptyMemory.RSS), Anonymous: mebibytes(s.scale.emptyMemory.Anonymous)}, err
}

// join joins the nodes.
func (p part) join(s *session, ctx context.Context) (result, error) {
	return s.window(ctx, p.Nodes, func() error { return s.join(ctx, p.Nodes) })
}

// growAhead is how many Pods may be starting while Deployments are made.
const growAhead = 600

// grow creates the Deployments as fast as their Pods start, and then the Services. Most Deployments name a node, or else the
// scheduler would take most of the time.
func (p part) grow(s *session, ctx context.Context) (result, error) {
	c := s.cluster
	return s.window(ctx, p.Nodes, func() error {
		if err := c.makeNamespaces(ctx, p.deployments()); err != nil {
			return err
		}
		first := c.deployed
		for ; c.deployed < p.deployments(); c.deployed++ {
			node := ""
			if c.deployed%scheduledOf != 0 {
				node = nodeName(c.deployed % p.Nodes)
			}
			if err := c.deploy(ctx, c.deployed, p.Replicas, node); err != nil {
				return err
			}
			made := (c.deployed + 1) * p.Replicas
			if err := until(ctx, "Pods start", func() (bool, error) {
				running, waiting := c.starts.counts()
				return running >= made-growAhead, fmt.Errorf("%d Pods run and %d wait, of %d", running, waiting, made)
			}); err != nil {
				return err
			}
		}
		if err := s.settled(ctx); err != nil {
			return err
		}
		for i := first; i < c.deployed; i++ {
			if err := c.expose(ctx, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// settled waits until all Pods run.
func (s *session) settled(ctx context.Context) error {
	return s.cluster.settled(ctx, s.cluster.deployed*s.sizes.Replicas)
}

// quiet reports what the nodes alone cost, once the versions are removed that the objects had while they were made. It takes as long as
// browse takes from one list of all pods to the next.
func (p part) quiet(s *session, ctx context.Context) (result, error) {
	if err := wait(ctx, s.sizes.Retention+s.sizes.Rest); err != nil {
		return result{}, err
	}
	return s.window(ctx, p.Nodes, func() error { return wait(ctx, p.Duration/2) })
}

// steady starts and ends Pods, and compares what that takes per node with what it took with a tenth of the cluster.
func (p part) steady(s *session, ctx context.Context) (result, error) {
	r, err := s.scaleChurn(ctx, p, p.Duration)
	if p.suffix != "" {
		s.scale.tenth = r
		return r, err
	}
	s.target("CPU per node, over that with a tenth of them", nodeCPU.value(r)/nodeCPU.value(s.scale.tenth), maxGrowth)
	s.target("memory per node, over that with a tenth of them", r.AnonymousEach/s.scale.tenth.AnonymousEach, maxGrowth)
	return r, err
}

// maxGrowth is how much more a node may cost with all nodes than with a tenth of them.
const maxGrowth = 1.2

// scaleChurn starts and ends Pods at a steady pace. If all nodes are there, starts and API calls count for the objectives.
func (s *session) scaleChurn(ctx context.Context, p part, duration time.Duration) (r result, err error) {
	judged := p.Nodes == s.sizes.Nodes
	if judged {
		err = s.countCalls(ctx, -1)
	}
	if err == nil {
		r, err = s.window(ctx, p.Nodes, func() error {
			return s.cluster.churn(ctx, p.sizes, time.Now().Add(duration))
		})
	}
	if err == nil && judged {
		s.scale.starts = append(s.scale.starts, s.scale.recent...)
		err = s.countCalls(ctx, 1)
	}
	return r, err
}

// scaleAfter goes on under the second server, if there is one.
func (s *session) scaleAfter(ctx context.Context) (result, error) {
	if !s.scale.killed {
		return result{}, nil
	}
	return s.scaleChurn(ctx, part{"", s.sizes}, s.sizes.Duration/2)
}

// Figures of a whole cluster, which is not compared with other servers.
var (
	operations    = row{unit: "in all", value: func(r result) figure { return figure(r.Operations) }}
	failed        = row{unit: "failed for good", value: func(r result) figure { return r.Failed }}
	takeover      = row{unit: "s until pods start under the other one", value: func(r result) figure { return r.Seconds }}
	databaseTimes = row{unit: "sizes of its objects", value: func(r result) figure { return r.Times }}
	serversRSS    = row{unit: "RSS MiB of all servers and Postgres, on average", value: func(r result) figure { return r.RSS }}
	// nodeCPU is the CPU time per node of the servers and Postgres, in ms per s.
	nodeCPU    = row{value: func(r result) figure { return 1000 * r.Cores / figure(r.Nodes) }}
	nodeMemory = row{value: func(r result) figure { return r.AnonymousEach }}
	nodeRSS    = row{value: func(r result) figure { return r.RSS / figure(r.Nodes) }}
)

// windowRows are the lines of a phase that reports what everything takes.
var windowRows = []row{
	seconds,
	{unit: "CPU of all servers and Postgres, % of a core", value: func(r result) figure { return 100 * r.Cores }},
	{unit: "of that Postgres, %", value: func(r result) figure { return 100 * r.DatabaseCores }},
	serversRSS,
	{unit: "pods started per s", value: func(r result) figure { return r.PerSecond }},
	{unit: "their p99 ms", value: func(r result) figure { return r.P99 }},
	{unit: "objects written per s", value: func(r result) figure { return r.Writes }},
	{unit: "KB written to the disk, or to Postgres' log, per s", value: func(r result) figure { return r.WrittenSecond }},
	{unit: "KB sent to clients per s", value: func(r result) figure { return r.Sent }},
	{unit: "CPU of the load generator, % of a core", value: func(r result) figure { return 100 * r.LoadCores }},
	{unit: "RSS MiB of the load generator", value: func(r result) figure { return r.LoadRSS }},
}

// scaleKill kills the leader, if there are several servers, while pods keep starting. It reports how long it took until a pod
// ran that was created under another leader.
func (s *session) scaleKill(ctx context.Context) (r result, err error) {
	if len(s.server.running) < 2 {
		return r, nil
	}
	before, err := s.leader(ctx)
	if err != nil {
		return r, err
	}
	load, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	n := s.sizes
	go func() {
		ended <- s.cluster.churn(load, n, time.Now().Add(untilTimeout))
	}()
	defer func() { stop(); <-ended }()
	killed := time.Now()
	if err := s.killFirst(); err != nil {
		return r, err
	}
	if err := s.countCalls(ctx, -1); err != nil {
		return r, err
	}
	if err := until(ctx, "another server leads", func() (bool, error) {
		now, err := s.leader(ctx)
		return now != "" && now != before, err
	}); err != nil {
		return r, err
	}
	led := time.Now()
	select {
	case <-s.cluster.starts.firstAfter(led):
	case err := <-ended:
		ended <- err
		return r, fmt.Errorf("no pod has started under the second server: %w", err)
	}
	took := time.Since(killed)
	progress("%s: another server leads after %s, and has started a pod after %s", s.server.Name, led.Sub(killed), took)
	// The pods of this time, with those that were created under the first server.
	if err := wait(ctx, n.Duration/6); err != nil {
		return r, err
	}
	times := sorted(s.cluster.starts.take())
	s.scale.starts = append(s.scale.starts, times...)
	r = result{Operations: len(times), Seconds: figure(took.Seconds()), P50: milliseconds(quantile(times, 50)), P99: milliseconds(quantile(times, 99))}
	return r, s.countCalls(ctx, 1)
}

// leader returns the holder of the controllers' Lease.
func (s *session) leader(ctx context.Context) (string, error) {
	lease, err := s.cluster.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "sqube-controllers", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}

// killFirst kills the server that was started first. From then on, the second one is measured.
func (s *session) killFirst() error {
	victim := s.server.running[0]
	if err := victim.End(syscall.SIGKILL); err != nil {
		return err
	}
	if err := victim.keeper.Dismiss(); err != nil {
		return err
	}
	s.server.running, s.server.PIDs, s.server.Addresses = s.server.running[1:], s.server.PIDs[1:], s.server.Addresses[1:]
	s.dialer.config.Host, s.scale.killed = "https://"+s.server.Addresses[0], true
	return nil
}
