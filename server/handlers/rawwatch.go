package handlers

import (
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/registry/rest"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sqube/sqube/server/watchtask"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// rawEvents returns a function that prepares a watch for events made of bytes, if the client requests objects as stored, in JSON or
// protobuf, or for events made of stored metadata.
func rawEvents(storage rest.Storage, scope *handlers.RequestScope) func(*http.Request) *http.Request {
	plain := plainStore(storage, scope) != nil
	kind := metav1.TypeMeta{Kind: scope.Kind.Kind, APIVersion: scope.Kind.GroupVersion().String()}
	return func(r *http.Request) *http.Request {
		if !plain {
			return r
		}
		options, _, err := negotiation.NegotiateOutputMediaType(r, scope.Serializer, scope)
		switch {
		case err != nil:
			return r
		case options.Convert != nil && options.Convert.Kind == "PartialObjectMetadata":
			return r.WithContext(apistorage.WithMetadata(r.Context()))
		case options.Convert != nil:
			return r
		}
		format, ok := formatOf(options.Accepted.MediaType)
		if !ok {
			return r
		}
		return r.WithContext(apistorage.WithEvents(r.Context(), apistorage.Events{TypeMeta: kind, Format: format}))
	}
}

// gathered returns a handler that serves a watch by calling watch, and gathers its events into few writes.
func gathered(watch http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if wsstream.IsWebSocketRequest(r) {
			watch(w, r)
			return
		}
		events := &eventWriter{ResponseWriter: w}
		watch(events, r)
		watchtask.AtEnd(r, events.Flush)
	}
}

// relay sends encoded events to a client.
type relay struct {
	eventWriter
	response *turnWriter
	count    func(size int)
}

// newEventCount returns a function that counts an event of a resource in upstream's metrics.
func newEventCount(r schema.GroupVersionResource) func(size int) {
	counters := sync.OnceValues(func() (basemetrics.CounterMetric, basemetrics.ObserverMetric) {
		metrics.Register()
		return metrics.WatchEvents.WithLabelValues(r.Group, r.Version, r.Resource), metrics.WatchEventsSizes.WithLabelValues(r.Group, r.Version, r.Resource)
	})
	return func(size int) {
		events, sizes := counters()
		events.Inc()
		sizes.Observe(float64(size))
	}
}

// Compressed implements apistorage.Sink.
func (e *relay) Compressed() bool { return e.response.compressed }

// Send implements apistorage.Sink.
func (e *relay) Send(event []byte, size int) error {
	_, err := e.Write(event)
	e.count(size)
	return err
}

// eventWriter buffers events that are ready at the same time, until the handler of the watch has no more and flushes: each write
// of an HTTP/2 response waits for the connection.
type eventWriter struct {
	http.ResponseWriter
	ready *[]byte // nil while there are none
}

// bufferSize is an HTTP/2 frame that fits, with its header, into one TLS record.
const bufferSize = 16<<10 - 9

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, bufferSize)
	return &b
}}

func (e *eventWriter) Write(p []byte) (int, error) {
	for written := 0; ; {
		if e.ready == nil {
			if len(p)-written > bufferSize {
				n, err := e.ResponseWriter.Write(p[written:])
				return written + n, err
			}
			e.ready = buffers.Get().(*[]byte)
		}
		n := min(len(p)-written, bufferSize-len(*e.ready))
		*e.ready = append(*e.ready, p[written:written+n]...)
		if written += n; written == len(p) {
			return written, nil
		}
		if err := e.send(); err != nil {
			return written, err
		}
	}
}

func (e *eventWriter) send() error {
	if e.ready == nil {
		return nil
	}
	ready := e.ready
	e.ready = nil
	_, err := e.ResponseWriter.Write(*ready)
	*ready = (*ready)[:0]
	buffers.Put(ready)
	return err
}

// Flush implements http.Flusher. If the events can't be written, the next write fails, or the request's context ends.
func (e *eventWriter) Flush() {
	if e.send() == nil {
		if flusher, ok := e.ResponseWriter.(http.Flusher); ok {
			flusher.Flush()
		}
	}
}

// Unwrap lets http.ResponseController reach the underlying writer.
func (e *eventWriter) Unwrap() http.ResponseWriter { return e.ResponseWriter }
