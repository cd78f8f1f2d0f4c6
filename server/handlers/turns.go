package handlers

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/server/routine"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sqube/sqube/server/stack"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// turns is one watch. Upstream's handler serves it in turns: a turn lasts while there are events for it to encode, in goroutines that end
// with it. Between turns, only the goroutine of the request is left, with little on its stack. It sends the events that are bytes already.
type turns struct {
	request *http.Request
	watch   apistorage.Pausing // nil if it can't pause
	relay   relay
}

type turnsKey struct{}

// watchInTurns returns a handler of watches. It leaves what follows their preparation to the task of the request, if that has one.
func watchInTurns(storage rest.Storage, lister rest.Lister, watcher rest.Watcher, scope *handlers.RequestScope, watchOnly bool,
	minTimeout time.Duration,
) http.HandlerFunc {
	if watcher != nil {
		watcher = pausing{watcher}
	}
	watching := *scope
	watching.Serializer = unpooled{scope.Serializer}
	serve, prepare := gathered(handlers.ListResource(lister, watcher, &watching, watchOnly, minTimeout)), rawEvents(storage, scope)
	count := newEventCount(scope.Resource)
	return func(w http.ResponseWriter, r *http.Request) {
		r = prepare(r)
		t, first := &turns{request: r}, &routine.Task{}
		canPause := !wsstream.IsWebSocketRequest(r)
		if canPause {
			response := &turnWriter{ResponseWriter: w}
			t.relay = relay{eventWriter{ResponseWriter: response}, response, count}
			w = response
		}
		turn := func(task *routine.Task) {
			ctx := routine.WithTask(r.Context(), task)
			if canPause {
				ctx = context.WithValue(ctx, turnsKey{}, t)
			}
			serve(w, r.WithContext(ctx))
		}
		prepared := false
		defer func() {
			if !prepared {
				t.end()
			}
		}()
		turn(first)
		if prepared = first.Func != nil; !prepared { // it was refused
			return
		}
		all := func() { t.serve(first, func() { turn(nil) }) }
		if task := routine.TaskFrom(r.Context()); task != nil {
			task.Func = all
		} else {
			all()
		}
	}
}

// serve serves a watch until its end. Upstream's handler has prepared the first turn. It prepares each of the others again, so that nothing
// is kept between them.
func (t *turns) serve(first *routine.Task, other func()) {
	defer t.end()
	turn := first.Func
	first.Func = nil
	stack.Repanic(<-stack.Elsewhere(turn))
	for t.resume() {
		stack.Repanic(<-stack.Elsewhere(other))
	}
}

// resume waits for the next turn. It returns false if the watch has ended.
func (t *turns) resume() bool {
	if t.watch == nil {
		return false
	}
	// Upstream's handler counts watches only while it serves them.
	count := longRunning(t.request)
	count.Inc()
	defer count.Dec()
	return t.watch.Resume(&t.relay)
}

func (t *turns) end() {
	if t.watch != nil {
		t.watch.End()
	}
}

// longRunning returns upstream's gauge of requests like r, see metrics.RecordLongRunning.
func longRunning(r *http.Request) basemetrics.GaugeMetric {
	info, _ := request.RequestInfoFrom(r.Context())
	return longRunningGauge().WithLabelValues(metrics.NormalizedVerb(r), info.APIGroup, info.APIVersion, info.Resource, info.Subresource,
		metrics.CleanScope(info), metrics.APIServerComponent)
}

var longRunningGauge = sync.OnceValue(func() *basemetrics.GaugeVec {
	metrics.Register()
	same := basemetrics.NewGaugeVec(&basemetrics.GaugeOpts{
		Subsystem:      metrics.APIServerComponent,
		Name:           "longrunning_requests",
		Help:           "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope and component. Not all requests are tracked this way.",
		StabilityLevel: basemetrics.STABLE,
	}, []string{"verb", "group", "version", "resource", "subresource", "scope", "component"})
	var registered prometheus.AlreadyRegisteredError
	err := legacyregistry.Register(same)
	if errors.As(err, &registered) {
		if upstream, ok := registered.ExistingCollector.(*basemetrics.GaugeVec); ok {
			return upstream
		}
	}
	if err != nil { // upstream has changed its definition
		klog.ErrorS(err, "Watches that wait for events are missing from apiserver_longrunning_requests")
	}
	return same
})

// pausing is a watcher whose watches pause while they have no events, if they are served in turns.
type pausing struct{ rest.Watcher }

// Watch implements rest.Watcher. Upstream's handler ends ctx after each turn.
func (p pausing) Watch(ctx context.Context, options *metainternalversion.ListOptions) (watch.Interface, error) {
	t, inTurns := ctx.Value(turnsKey{}).(*turns)
	deadline, limited := ctx.Deadline()
	switch {
	case !inTurns || !limited:
		return p.Watcher.Watch(ctx, options)
	case t.watch != nil:
		return t.watch, nil
	}
	ctx = request.WithNamespace(t.request.Context(), request.NamespaceValue(ctx))
	w, err := p.Watcher.Watch(apistorage.WithDeadline(ctx, deadline), options)
	if pausing, ok := w.(apistorage.Pausing); ok && err == nil {
		pausing.MayPause()
		t.watch = pausing
	}
	return w, err
}

// turnWriter is the response to a watch. Upstream's handler begins it in each turn.
type turnWriter struct {
	http.ResponseWriter
	begun, compressed bool
}

// Header returns the response's header until the response has begun. What later turns set is dropped: upstream's handler adds values in
// each of them.
func (t *turnWriter) Header() http.Header {
	if t.begun {
		return http.Header{}
	}
	return t.ResponseWriter.Header()
}

// WriteHeader implements http.ResponseWriter.
func (t *turnWriter) WriteHeader(code int) {
	if !t.begun {
		t.begun, t.compressed = true, t.ResponseWriter.Header().Get("Content-Encoding") == "gzip"
		t.ResponseWriter.WriteHeader(code)
	}
}

// Flush implements http.Flusher.
func (t *turnWriter) Flush() {
	if flusher, ok := t.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

// Unwrap lets http.ResponseController reach the underlying writer.
func (t *turnWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }
