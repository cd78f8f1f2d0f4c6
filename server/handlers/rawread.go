package handlers

import (
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	auditapi "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	storeerr "k8s.io/apiserver/pkg/storage/errors"

	"github.com/sqube/sqube/sqlstore/apistorage"
)

// The byte read path: a get or list whose response is JSON or protobuf is served by a copy of the resource's store whose objects
// are apistorage.Raw, which stay bytes all the way from the database to the client. Options, errors, compression and metrics are
// handled like those of other requests.

// preferRaw returns a handler that serves requests from bytes if possible, with the handlers that bytes makes for such stores,
// and otherwise calls objects. It returns objects itself if the storage does more than return stored objects.
func preferRaw(from rest.Storage, scope *handlers.RequestScope, objects http.HandlerFunc, bytes func(*registry.Store) http.HandlerFunc) http.HandlerFunc {
	store := plainStore(from, scope)
	if store == nil {
		return objects
	}
	kinds, _, err := scope.Typer.ObjectKinds(store.NewListFunc())
	if err != nil {
		return objects
	}
	json := bytes(rawStore(store, scope, kinds[0].Kind, apistorage.JSON))
	protobuf := bytes(rawStore(store, scope, kinds[0].Kind, apistorage.Protobuf))
	return func(w http.ResponseWriter, r *http.Request) {
		to, format, ok := asked(r, scope)
		switch {
		case !ok || to != nil || responseAudited(r):
			objects(w, r)
		case format == apistorage.JSON:
			json(w, r)
		default:
			protobuf(w, r)
		}
	}
}

// responseAudited reports whether the audit log records the response. It then needs objects, since its policy may omit parts.
func responseAudited(r *http.Request) bool {
	event := audit.AuditContextFrom(r.Context())
	return event != nil && event.GetEventLevel().GreaterOrEqual(auditapi.LevelRequestResponse)
}

// asked returns the kind to which a response converts objects, nil for none, and its format. ok is false for any other response: one
// that is indented or in another format, a watch, an error. Besides Accept, a query parameter and some user agents cause indentation.
func asked(r *http.Request, scope *handlers.RequestScope) (to *schema.GroupVersionKind, format apistorage.Format, ok bool) {
	if r.URL.RawQuery != "" && r.URL.Query().Has("watch") {
		return nil, 0, false
	}
	options, form, err := negotiation.NegotiateOutputMediaType(r, scope.Serializer, scope)
	if err != nil {
		return nil, 0, false
	}
	format, ok = formatOf(options.Accepted.MediaType)
	return options.Convert, format, ok && (form.PrettySerializer == nil || form.Serializer != form.PrettySerializer)
}

// formatOf returns the format of a media type, or false if objects can't be sent in it as stored.
func formatOf(mediaType string) (apistorage.Format, bool) {
	switch mediaType {
	case runtime.ContentTypeJSON:
		return apistorage.JSON, true
	case runtime.ContentTypeProtobuf:
		return apistorage.Protobuf, true
	}
	return 0, false
}

// plainStore returns the store that a REST storage is or embeds, if reads in the scope return objects as stored; nil otherwise.
func plainStore(from rest.Storage, scope *handlers.RequestScope) *registry.Store {
	if scope.Subresource != "" {
		return nil
	}
	store := StoreOf(from)
	if store == nil || store.Decorator != nil || apistorage.Of(store.Storage.Storage) == nil {
		return nil
	}
	return store
}

// CustomReads are the handlers that get, list and watch custom resources in their storage version.
type CustomReads struct{ Get, List, Watch http.HandlerFunc }

// NewCustomReads returns the handlers of a storage. They pass gets and lists that can't be served from bytes to others. measured wraps all other
// handlers. Watches are encoded by events, and last at least minTimeout unless they set a timeout.
func NewCustomReads(custom rest.StandardStorage, scope *handlers.RequestScope, events runtime.NegotiatedSerializer, minTimeout time.Duration,
	others http.HandlerFunc, measured func(http.HandlerFunc) http.HandlerFunc,
) CustomReads {
	watching := *scope
	watching.Serializer = events
	list := func(store *registry.Store) http.HandlerFunc {
		return measured(gzipped(handlers.ListResource(store, nil, scope, false, 0)))
	}
	return CustomReads{
		Get: preferRaw(custom, scope, others, func(raw *registry.Store) http.HandlerFunc {
			return measured(getRaw(raw, scope))
		}),
		List:  preferRaw(custom, scope, preferRawTables(custom, scope, others, list), list),
		Watch: measured(watchInTurns(custom, custom, custom, &watching, true, minTimeout)),
	}
}

// rawStore returns a copy of store whose objects and lists hold bytes.
func rawStore(store *registry.Store, scope *handlers.RequestScope, listKind string, format apistorage.Format) *registry.Store {
	item := metav1.TypeMeta{Kind: scope.Kind.Kind, APIVersion: scope.Kind.GroupVersion().String()}
	list := metav1.TypeMeta{Kind: listKind, APIVersion: item.APIVersion}
	raw := *store
	raw.NewFunc = func() runtime.Object { return &apistorage.Raw{TypeMeta: item, Format: format} }
	raw.NewListFunc = func() runtime.Object { return &apistorage.RawList{TypeMeta: list, Item: item, Format: format} }
	return &raw
}

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
