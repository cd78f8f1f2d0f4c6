package handlers

import (
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/sqube/sqube/sqlstore/apistorage"
)

// preferRawEvents returns a handler that serves a watch by watch, with events of bytes
// where the client asks for objects as they are, in JSON or protobuf.
func preferRawEvents(storage rest.Storage, scope *handlers.RequestScope, watch http.HandlerFunc) http.HandlerFunc {
	plain := plainStore(storage, scope) != nil
	kind := metav1.TypeMeta{Kind: scope.Kind.Kind, APIVersion: scope.Kind.GroupVersion().String()}
	return func(w http.ResponseWriter, r *http.Request) {
		if plain {
			if format, ok := eventFormat(r, scope); ok {
				r = r.WithContext(apistorage.WithEvents(r.Context(), apistorage.Events{TypeMeta: kind, Format: format}))
			}
		}
		if wsstream.IsWebSocketRequest(r) {
			watch(w, r)
			return
		}
		events := &eventWriter{ResponseWriter: w}
		defer events.Flush()
		watch(events, r)
	}
}

// eventFormat returns what the objects of a watch are encoded to, or false
// where they are to be converted.
func eventFormat(r *http.Request, scope *handlers.RequestScope) (apistorage.Format, bool) {
	options, _, err := negotiation.NegotiateOutputMediaType(r, scope.Serializer, scope)
	if err != nil || options.Convert != nil {
		return 0, false
	}
	switch options.Accepted.MediaType {
	case runtime.ContentTypeJSON:
		return apistorage.JSON, true
	case runtime.ContentTypeProtobuf:
		return apistorage.Protobuf, true
	}
	return 0, false
}

// eventWriter gathers events that are ready at once, until the writer of the
// watch has no more of them and flushes: a write of a response on HTTP/2 waits
// for the connection.
type eventWriter struct {
	http.ResponseWriter
	ready *[]byte // nil while there are none
}

// gathered is how many bytes are written at once: a frame of HTTP/2 that is, with its header, one record of TLS.
const gathered = 16<<10 - 9

var gathering = sync.Pool{New: func() any {
	b := make([]byte, 0, gathered)
	return &b
}}

// Write implements http.ResponseWriter.
func (e *eventWriter) Write(p []byte) (int, error) {
	for written := 0; ; {
		if e.ready == nil {
			if len(p)-written > gathered {
				n, err := e.ResponseWriter.Write(p[written:])
				return written + n, err
			}
			e.ready = gathering.Get().(*[]byte)
		}
		n := min(len(p)-written, gathered-len(*e.ready))
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
	gathering.Put(ready)
	return err
}

// Flush implements http.Flusher. What can't be written is noticed by the next
// write, or by the end of the request's context.
func (e *eventWriter) Flush() {
	if e.send() == nil {
		if flusher, ok := e.ResponseWriter.(http.Flusher); ok {
			flusher.Flush()
		}
	}
}

// CloseNotify is for upstream's handler of custom resources, which flushes only
// what has it.
func (e *eventWriter) CloseNotify() <-chan bool {
	if notifier, ok := e.ResponseWriter.(interface{ CloseNotify() <-chan bool }); ok {
		return notifier.CloseNotify()
	}
	return make(chan bool)
}

// Unwrap is for http.ResponseController.
func (e *eventWriter) Unwrap() http.ResponseWriter { return e.ResponseWriter }
