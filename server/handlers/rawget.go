package handlers

import (
	"net/http"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	storeerr "k8s.io/apiserver/pkg/storage/errors"

	"github.com/sqube/sqube/sqlstore/apistorage"
)

// getRaw serves gets from a store of apistorage.Raw.
//
// Most gets have no options, and the stored bytes are the response. Upstream's handler would negotiate, transform, trace and
// encode the object, which takes longer than the rest of the request. So it serves only gets with options and traced gets.
// Objects that may be compressed go through its encoder.
func getRaw(store *registry.Store, scope *handlers.RequestScope) http.HandlerFunc {
	others := handlers.GetResource(store, scope)
	mediaType := runtime.ContentTypeJSON
	if store.NewFunc().(*apistorage.Raw).Format == apistorage.Protobuf {
		mediaType = runtime.ContentTypeProtobuf
	}
	form, ok := runtime.SerializerInfoForMediaType(scope.Serializer.SupportedMediaTypes(), mediaType)
	if !ok {
		return others
	}
	version := scope.Kind.GroupVersion()
	encoder := scope.Serializer.EncoderForVersion(form.Serializer, version)
	contentType := []string{mediaType}
	return func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if r.URL.RawQuery != "" || trace.SpanFromContext(ctx).IsRecording() {
			others(w, r)
			return
		}
		fail := func(err error) { responsewriters.ErrorNegotiated(err, scope.Serializer, version, w, r) }
		namespace, name, err := scope.Namer.Name(r)
		if err != nil {
			fail(err)
			return
		}
		object, err := store.Get(request.WithNamespace(ctx, namespace), name, &metav1.GetOptions{})
		if err != nil {
			fail(err)
			return
		}
		if object.(*apistorage.Raw).Len() >= gzipFrom {
			responsewriters.WriteObjectNegotiated(scope.Serializer, scope, version, w, r, http.StatusOK, object, false)
			return
		}
		request.TrackSerializeResponseObjectLatency(ctx, func() {
			answer := &answer{w: w, contentType: contentType}
			if err := encoder.Encode(object, answer); err != nil {
				utilruntime.HandleErrorWithContext(ctx, err, "An object could not be sent", "resource", scope.Resource, "namespace", namespace, "name", name)
				if !answer.begun {
					fail(storeerr.InterpretGetError(err, scope.Resource.GroupResource(), name))
				}
			}
		})
	}
}

// answer is a response whose header is set with the first write. Until then, an error can be sent instead.
type answer struct {
	w           http.ResponseWriter
	contentType []string
	begun       bool
}

func (a *answer) Write(p []byte) (int, error) {
	if !a.begun {
		a.begun = true
		a.w.Header()["Content-Type"] = a.contentType
	}
	return a.w.Write(p)
}
