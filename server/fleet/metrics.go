package fleet

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Metrics are totals, and the clusters with the most of something by name: never a series for each cluster.

// worst is how many clusters are named.
const worst = 10

// Reasons for which the door refuses a request.
const (
	refusedUnauthorized = "unauthorized"
	refusedLimit        = "limit"
	refusedAsleep       = "not woken"
)

var (
	wakeDuration = metrics.NewHistogram(&metrics.HistogramOpts{
		Name: "sqube_cluster_wake_duration_seconds",
		Help: "How long hosted clusters took to wake up, from their turn until the first request could be answered.",
		// From 5 milliseconds to 40 seconds.
		Buckets:        metrics.ExponentialBuckets(0.005, 2, 14),
		StabilityLevel: metrics.ALPHA,
	})
	refusedRequests = metrics.NewCounterVec(&metrics.CounterOpts{
		Name:           "sqube_cluster_requests_refused_total",
		Help:           "Requests to hosted clusters that were refused before these saw them, by reason: nobody may have sent it (unauthorized), spec.limits (limit), the cluster can't be woken up (not woken).",
		StabilityLevel: metrics.ALPHA,
	}, []string{"reason"})
	passedRequests = metrics.NewCounter(&metrics.CounterOpts{
		Name: "sqube_cluster_requests_total", Help: "Requests that were passed to hosted clusters.", StabilityLevel: metrics.ALPHA,
	})
	stateDesc   = newDesc("sqube_clusters", "Hosted clusters, by state on this server: asleep, waking, awake.", "state")
	watchesDesc = newDesc("sqube_cluster_watches", "Open watches of hosted clusters.")
	bytesDesc   = newDesc("sqube_cluster_database_bytes", "Size of the databases of the hosted clusters that are awake.")
	cacheDesc   = newDesc("sqube_cluster_cache_bytes", "Memory that the objects kept by hosted clusters use, and the events that their watches have not sent.")
	worstDesc   = newDesc("sqube_cluster_worst", "The ten hosted clusters with the most requests since this server knows them, open watches, bytes in the database, and bytes in memory.", "of", "namespace", "cluster")
)

func newDesc(name, help string, labels ...string) *metrics.Desc {
	return metrics.NewDesc(name, help, labels, nil, metrics.ALPHA, "")
}

// registered are the fleets of the process that run.
var registered = &collector{fleets: map[*Fleet]bool{}}

type collector struct {
	metrics.BaseStableCollector
	once   sync.Once
	mu     sync.Mutex
	fleets map[*Fleet]bool
}

// add includes a fleet in the metrics until remove is called.
func (c *collector) add(f *Fleet) (remove func()) {
	c.once.Do(func() {
		legacyregistry.MustRegister(wakeDuration, refusedRequests, passedRequests)
		for _, reason := range []string{refusedUnauthorized, refusedLimit, refusedAsleep} {
			refusedRequests.WithLabelValues(reason) // so that the metric starts at 0
		}
		legacyregistry.CustomMustRegister(c)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fleets[f] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.fleets, f)
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *collector) DescribeWithStability(descs chan<- *metrics.Desc) {
	for _, one := range []*metrics.Desc{stateDesc, watchesDesc, bytesDesc, cacheDesc, worstDesc} {
		descs <- one
	}
}

// usage is what a cluster uses.
type usage struct {
	*cluster
	requests, watches, bytes, memory float64
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(found chan<- metrics.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*usage
	states := map[string]float64{"asleep": 0, "waking": 0, "awake": 0}
	for f := range c.fleets {
		for _, one := range f.list() {
			u, state := one.use()
			all = append(all, u)
			states[state]++
		}
	}
	for state, number := range states {
		found <- metrics.NewLazyConstMetric(stateDesc, metrics.GaugeValue, number, state)
	}
	for _, kind := range []struct {
		name  string
		total *metrics.Desc
		of    func(*usage) float64
	}{
		{"requests", nil, func(u *usage) float64 { return u.requests }},
		{"watches", watchesDesc, func(u *usage) float64 { return u.watches }},
		{"database_bytes", bytesDesc, func(u *usage) float64 { return u.bytes }},
		{"memory_bytes", cacheDesc, func(u *usage) float64 { return u.memory }},
	} {
		if kind.total != nil {
			sum := 0.0
			for _, u := range all {
				sum += kind.of(u)
			}
			found <- metrics.NewLazyConstMetric(kind.total, metrics.GaugeValue, sum)
		}
		slices.SortFunc(all, func(a, b *usage) int { return cmp.Compare(kind.of(b), kind.of(a)) })
		for _, u := range all[:min(worst, len(all))] {
			if kind.of(u) > 0 {
				found <- metrics.NewLazyConstMetric(worstDesc, metrics.GaugeValue, kind.of(u), kind.name, u.name.Namespace, u.name.Name)
			}
		}
	}
}

// list returns the clusters.
func (f *Fleet) list() (all []*cluster) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, c := range f.clusters {
		all = append(all, c)
	}
	return all
}

// traffic counts the requests that a cluster got.
type traffic struct {
	requests atomic.Uint64
	watches  atomic.Int64 // that are open
}

// begin counts a request until end is called.
func (t *traffic) begin(watch bool) (end func()) {
	passedRequests.Inc()
	t.requests.Add(1)
	if !watch {
		return func() {}
	}
	t.watches.Add(1)
	return func() { t.watches.Add(-1) }
}

// use returns what the cluster uses, and its state.
func (c *cluster) use() (u *usage, state string) {
	u = &usage{cluster: c, requests: float64(c.traffic.requests.Load()), watches: float64(c.traffic.watches.Load())}
	r := c.current()
	if r == nil {
		return u, "asleep"
	}
	select {
	case <-r.ready:
	default:
		return u, "waking"
	}
	if r.store != nil {
		stats := r.store.Stats()
		u.bytes, u.memory = float64(stats.Space.Database), float64(stats.Cached+stats.Watches)
	}
	return u, "awake"
}
