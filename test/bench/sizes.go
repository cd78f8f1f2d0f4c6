package main

import (
	"flag"
	"fmt"
	"time"
)

// sizes define how much each phase does.
type sizes struct {
	Pods        int           // pods created, then listed
	Nodes       int           // they run on, each watched by one kubelet
	Writes      int           // ConfigMaps created, then updated, with 64 clients; shares of it of other writes
	Gets        int           // single reads
	Lists       int           // lists of each kind
	Customs     int           // custom resources created, then listed
	ObjectBytes int           // of each custom resource of `bench large-objects`
	Watchers    int           // watchers of all ConfigMaps
	Events      int           // creates that each of them sees
	Idlers      int           // idle watches of `bench watches`
	Idle        time.Duration // observation of a server without load
	Rest        time.Duration // before a server is observed without load
	Objects     int           // ConfigMaps of `bench size`, and of the largest cluster of `bench fleet`
	Definitions int           // of `bench definitions`
	DefinedBy   []string      // their files; empty for generated ones
	Updates     int           // of the 2,000 objects of `bench churn`
	Retention   time.Duration // of their versions in the end, and of those in `bench scale`
	Settle      time.Duration // before requests or the database are measured
	Duration    time.Duration // of the steady load of `bench scale` and `bench fleet`, and of the Leases of `bench wear`
	Replicas    int           // of each of its Deployments
	Pace        int           // its pods that start or end per second
	Clients     int           // at once, at most, of `bench clients`
	Clusters    int           // of `bench fleet` that sleep
	Awake       int           // of them that are awake, with a client each
	Waking      int           // of them that wake at once
	Strict      bool          // a missed target fails the run
	Profiles    string        // folder for CPU profiles of each phase; empty for none
}

var defaultSizes = sizes{
	Pods: 10_000, Nodes: 1_000, Writes: 6_000, Gets: 10_000, Lists: 5, Customs: 3_000, ObjectBytes: 100 << 10, Watchers: 100, Events: 500, Idlers: 10_000,
	Idle: 20 * time.Second, Rest: 5 * time.Second, Objects: 100_000, Definitions: 1_000,
	Updates: 20_000, Retention: 10 * time.Second, Settle: time.Minute,
	Duration: time.Minute, Replicas: 30, Pace: 20, Clients: 1000, Clusters: 10_000, Awake: 500, Waking: 200, Strict: true,
}

// quickSizes make a run take seconds, enough to check that every phase works.
var quickSizes = sizes{
	Pods: 100, Nodes: 20, Writes: 80, Gets: 80, Lists: 1, Customs: 20, ObjectBytes: 10 << 10, Watchers: 5, Events: 10, Idlers: 100,
	Idle: time.Second / 5, Rest: time.Second / 10, Objects: 200, Definitions: 5,
	Updates: 500, Retention: time.Second, Settle: 5 * time.Second,
	Duration: 4 * time.Second, Replicas: 10, Pace: 20, Clients: 40, Clusters: 10, Awake: 4, Waking: 4,
}

// flags defines a flag for each of the sizes that a user may choose. The defaults are the current values.
func (s *sizes) flags(fs *flag.FlagSet) {
	fs.StringVar(&s.Profiles, "profiles", s.Profiles, "folder for CPU profiles of each phase; taking them costs a little CPU")
	fs.IntVar(&s.Pods, "pods", s.Pods, "pods to create and to list")
	fs.IntVar(&s.Nodes, "nodes", s.Nodes, "nodes that they run on, each with a watch of its pods; in size, ConfigMaps with their own watch")
	fs.IntVar(&s.Writes, "writes", s.Writes, "ConfigMaps to create with 64 clients, and updates of them; other phases write a half or a quarter as many")
	fs.IntVar(&s.Gets, "gets", s.Gets, "single reads")
	fs.IntVar(&s.Lists, "lists", s.Lists, "lists of each kind; short lists are repeated more often")
	fs.IntVar(&s.Customs, "customs", s.Customs, "custom resources to create and to list")
	fs.IntVar(&s.ObjectBytes, "object-bytes", s.ObjectBytes, "size of each custom resource of large-objects")
	fs.IntVar(&s.Watchers, "watchers", s.Watchers, "watchers of all ConfigMaps")
	fs.IntVar(&s.Events, "events", s.Events, "creates that each of these watchers sees")
	fs.IntVar(&s.Idlers, "idle-watches", s.Idlers, "watches without events of watches, on shared connections and on their own")
	fs.DurationVar(&s.Idle, "idle", s.Idle, "how long to observe an idle server")
	fs.IntVar(&s.Objects, "objects", s.Objects, "ConfigMaps of size, which compares the cost of work on them with that on 1% of them, and of the largest cluster of fleet")
	fs.IntVar(&s.Definitions, "definitions", s.Definitions, "definitions that definitions makes, and a tenth and a hundredth of them before")
	fs.Func("definitions-from", "folder of YAML files, each with one CustomResourceDefinition, that definitions makes instead of generated ones, in the order of their names", s.definitionFiles)
	fs.IntVar(&s.Updates, "updates", s.Updates, "updates that churn makes")
	fs.DurationVar(&s.Retention, "retention", s.Retention, "for how long scale keeps versions, and churn in the end")
	fs.DurationVar(&s.Duration, "duration", s.Duration, "for how long scale and fleet measure steady load, and wear renews Leases")
	fs.IntVar(&s.Replicas, "replicas", s.Replicas, "pods of each Deployment of scale")
	fs.IntVar(&s.Pace, "pace", s.Pace, "pods that scale starts or ends per second")
	fs.IntVar(&s.Clusters, "clusters", s.Clusters, "clusters of fleet that sleep")
	fs.IntVar(&s.Awake, "awake", s.Awake, "clusters of fleet that are awake, with a client each")
	fs.IntVar(&s.Waking, "waking", s.Waking, "clusters of fleet that wake at once")
	fs.DurationVar(&s.Settle, "settle", s.Settle, "how long churn waits before it measures requests or the database")
}

// validate rejects sizes that a phase can't run with.
func (s sizes) validate() error {
	for _, n := range []int{s.Pods, s.Nodes, s.Writes, s.Gets, s.Lists, s.Customs, s.ObjectBytes, s.Watchers, s.Events, s.Idlers, s.Objects, s.Definitions, s.Updates, s.Replicas, s.Pace, s.Clusters, s.Awake, s.Waking} {
		if n < 1 || n > 1_000_000 {
			return fmt.Errorf("sizes must be between 1 and 1,000,000, not %d", n)
		}
	}
	if files := len(s.DefinedBy); files > 0 && files < s.Definitions {
		return fmt.Errorf("--definitions must be at most %d, the number of files, not %d", files, s.Definitions)
	}
	if s.Objects < 200 || s.Nodes > s.Objects/2 {
		return fmt.Errorf("--objects must be at least 200 and twice --nodes, not %d with %d nodes", s.Objects, s.Nodes)
	}
	if s.Idle <= 0 || s.Idle > time.Hour {
		return fmt.Errorf("--idle must be more than 0 and at most 1h, not %s", s.Idle)
	}
	if s.Retention < time.Second {
		return fmt.Errorf("--retention must be at least 1s, not %s", s.Retention)
	}
	if s.Duration < time.Second || s.Duration > time.Hour {
		return fmt.Errorf("--duration must be at least 1s and at most 1h, not %s", s.Duration)
	}
	if s.Settle < 0 || s.Settle > time.Hour {
		return fmt.Errorf("--settle must be at least 0 and at most 1h, not %s", s.Settle)
	}
	return nil
}

// selected is how many of the pods have the label that the phase of label selectors selects: 200 of 10,000.
func (s sizes) selected() int { return max(1, s.Pods/50) }

// nodeOf returns the node that a pod runs on. The first node has 50 of 10,000, which the phase of field selectors selects; the
// others share the rest.
func (s sizes) nodeOf(pod int) int {
	if pod < max(1, s.Pods/200) || s.Nodes == 1 {
		return 0
	}
	return 1 + pod%(s.Nodes-1)
}
