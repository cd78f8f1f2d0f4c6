package server

import (
	"context"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	etcd3metrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/client-go/util/workqueue"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // sets the provider

	"github.com/sqube/sqube/server/decorate"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// A work queue with metrics has a goroutine that wakes up twice a second, to set two of them: how long the running work has been running.
// A control plane has 80 queues, and their goroutines take half of the CPU of one with nothing to do. So these two metrics are
// determined when they are read, and the goroutines end when they first set them.

// queueProvider makes the metrics of all queues. workqueue.SetProvider works once in a process, and upstream's package has called it.
//
//go:linkname queueProvider k8s.io/client-go/util/workqueue.globalMetricsProvider
var queueProvider workqueue.MetricsProvider

func init() {
	queueProvider = &queueMetrics{MetricsProvider: queueProvider, byName: map[string]*runningWork{}}
}

// queueMetrics are upstream's metrics of queues, except for those of running work.
type queueMetrics struct {
	workqueue.MetricsProvider

	mu     sync.Mutex
	byName map[string]*runningWork
}

// runningWork is the work in progress of all queues of a name.
type runningWork struct {
	total, longest workqueue.SettableGaugeMetric

	mu    sync.Mutex
	began []time.Time
}

func (m *queueMetrics) of(name string) *runningWork {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byName[name] == nil {
		m.byName[name] = &runningWork{
			total:   m.MetricsProvider.NewUnfinishedWorkSecondsMetric(name),
			longest: m.MetricsProvider.NewLongestRunningProcessorSecondsMetric(name),
		}
	}
	return m.byName[name]
}

// NewLatencyMetric implements workqueue.MetricsProvider. The metric is set when work begins.
func (m *queueMetrics) NewLatencyMetric(name string) workqueue.HistogramMetric {
	return observed{m.MetricsProvider.NewLatencyMetric(name), m.of(name).begin}
}

// NewWorkDurationMetric implements workqueue.MetricsProvider. The metric is set when work ends.
func (m *queueMetrics) NewWorkDurationMetric(name string) workqueue.HistogramMetric {
	return observed{m.MetricsProvider.NewWorkDurationMetric(name), m.of(name).end}
}

// NewUnfinishedWorkSecondsMetric implements workqueue.MetricsProvider.
func (m *queueMetrics) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return endsGoroutine{}
}

// NewLongestRunningProcessorSecondsMetric implements workqueue.MetricsProvider.
func (m *queueMetrics) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return endsGoroutine{}
}

// observed is a metric that passes on what it observes.
type observed struct {
	workqueue.HistogramMetric
	also func(seconds float64)
}

func (o observed) Observe(seconds float64) {
	o.HistogramMetric.Observe(seconds)
	o.also(seconds)
}

// endsGoroutine is set by the goroutine that does nothing else. It ends as if it returned: its deferred calls run.
type endsGoroutine struct{}

func (endsGoroutine) Set(float64) { runtime.Goexit() }

func (w *runningWork) begin(float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.began = append(w.began, time.Now())
}

// end forgets the work that has taken about that long.
func (w *runningWork) end(seconds float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.began) == 0 {
		return
	}
	began := time.Now().Add(-time.Duration(seconds * float64(time.Second)))
	nearest := 0
	for i := range w.began {
		if w.began[i].Sub(began).Abs() < w.began[nearest].Sub(began).Abs() {
			nearest = i
		}
	}
	w.began = slices.Delete(w.began, nearest, nearest+1)
}

// withRunningWork returns a handler of metrics that includes those of running work.
func withRunningWork(next http.Handler) http.Handler {
	all, ours := queueProvider.(*queueMetrics)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ours {
			all.set()
		}
		next.ServeHTTP(w, r)
	})
}

func (m *queueMetrics) set() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, work := range m.byName {
		var total, longest time.Duration
		work.mu.Lock()
		for _, began := range work.began {
			total += now.Sub(began)
			longest = max(longest, now.Sub(began))
		}
		work.mu.Unlock()
		work.total.Set(total.Seconds())
		work.longest.Set(longest.Seconds())
	}
}

// Objects are counted again after a minute, like upstream, or sooner if counting is cheap: priority and fairness weighs a list
// by the last count.
const (
	maxCountInterval = time.Minute
	minCountInterval = 5 * time.Second
	// countPause is how long counting pauses, as a multiple of the time that it took.
	countPause = 200
)

// objectCounter counts the objects of each resource, for the metrics and for priority and fairness, which weighs a list by the
// number of objects that it reads.
type objectCounter struct {
	tracker flowcontrolrequest.StorageObjectCountTracker
	hosted  bool // so that upstream's metrics, which are those of the process, do not have its counts

	mu sync.Mutex
	// storages of a resource in the order in which they were made. A custom resource can have one for requests and one for informers.
	storages map[schema.GroupResource][]storage.Interface
}

func newObjectCounter(hosted bool) *objectCounter {
	return &objectCounter{hosted: hosted, tracker: flowcontrolrequest.NewStorageObjectCountTracker(), storages: map[schema.GroupResource][]storage.Interface{}}
}

// decorate returns a decorator that makes storages with next and counts their objects.
func (c *objectCounter) decorate(next generic.StorageDecorator) generic.StorageDecorator {
	return decorate.Storage(next, func(resource schema.GroupResource, made storage.Interface, destroy factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !slices.Contains(c.storages[resource], made) {
			c.storages[resource] = append(c.storages[resource], made)
			// Upstream estimates sizes from the keys; the store measures them itself.
			noKeys := func(context.Context) ([]string, error) { return nil, nil }
			if err := made.EnableResourceSizeEstimation(noKeys); err != nil {
				return nil, nil, err
			}
		}
		return made, func() {
			c.forget(resource, made)
			destroy()
		}, nil
	})
}

// stored returns a storage of each resource that is stored under its own name.
func (c *objectCounter) stored() map[schema.GroupResource]*apistorage.Storage {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[schema.GroupResource]*apistorage.Storage{}
	for resource, all := range c.storages {
		for _, made := range all {
			if s, ok := made.(*apistorage.Storage); ok {
				found[resource] = s
			}
		}
	}
	return found
}

// forget stops counting a resource, unless it has another storage, such as a new one because its definition changed.
func (c *objectCounter) forget(resource schema.GroupResource, made storage.Interface) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(c.storages[resource]), func(s storage.Interface) bool { return s == made })
	if c.storages[resource] = left; len(left) > 0 {
		return
	}
	delete(c.storages, resource)
	if !c.hosted {
		etcd3metrics.DeleteStoreStats(resource)
	}
}

// report sets the metrics of a resource, unless it was forgotten while its objects were counted.
func (c *objectCounter) report(resource schema.GroupResource, made storage.Interface, stats storage.Stats, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hosted && slices.Contains(c.storages[resource], made) {
		etcd3metrics.UpdateStoreStats(resource, stats, err)
	}
}

// run counts until ctx ends. While the store's revision is as before, it does so only as often as upstream. It does not run the tracker, which
// would only forget resources that are no longer counted: a lookup knows that they are out of date.
func (c *objectCounter) run(ctx context.Context, revision func() int64) {
	ticker := time.NewTicker(minCountInterval)
	defer ticker.Stop()
	var due map[schema.GroupResource]time.Time
	for {
		counted, began := revision(), time.Now()
		next := map[schema.GroupResource]time.Time{}
		c.mu.Lock()
		storages := maps.Clone(c.storages)
		c.mu.Unlock()
		for resource, all := range storages {
			made := all[len(all)-1]
			began := time.Now()
			if began.Before(due[resource]) {
				next[resource] = due[resource]
				continue
			}
			stats, err := made.Stats(ctx)
			next[resource] = time.Now().Add(min(maxCountInterval, max(minCountInterval, countPause*time.Since(began))))
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				c.tracker.Set(resource.String(), stats)
			}
			c.report(resource, made, stats, err)
		}
		due = next
		for waiting := true; waiting; waiting = revision() == counted && time.Since(began) < maxCountInterval {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}
}
