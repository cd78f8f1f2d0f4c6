package server

import (
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"k8s.io/client-go/util/workqueue"
	_ "k8s.io/component-base/metrics/prometheus/workqueue" // sets the provider
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
