package handlers

import (
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapi "k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sqube/sqube/server/bodies"
	"github.com/sqube/sqube/server/watchtask"
)

// endpoint is one resource or subresource.
type endpoint struct {
	namespaced bool
	within     bool // also a collection in each namespace, though it has none: see CreaterInNamespaces
	// routes are made at the first request, since most servers get requests for few resources.
	routes func() *routes
}

// CreaterInNamespaces is implemented by a storage of objects without a namespace, which are not stored, but can be created in one: what
// they ask for is then limited to it, and so is the right that it takes.
type CreaterInNamespaces interface {
	rest.Creater
	CreatesInNamespaces()
}

// CollectionDeleterEverywhere is implemented by a storage whose collection can be deleted from in all namespaces at once, too, which takes
// the right in all of them.
type CollectionDeleterEverywhere interface {
	rest.CollectionDeleter
	DeletesCollectionEverywhere()
}

// LargeBodies is implemented by a storage whose objects can be larger than others, and keep most of what they hold as it was sent.
type LargeBodies interface {
	// MaxBody returns how many bytes the body of a request may have, and how many those of all requests may take together in memory.
	MaxBody() (bytes, together int64)
}

// routes has the methods of all paths of an endpoint.
type routes struct {
	collection methods // …/RESOURCE, within a namespace if it has one
	everywhere methods // …/RESOURCE of a namespaced resource, in all namespaces
	item       methods // …/RESOURCE/NAME, or …/RESOURCE/NAME/SUBRESOURCE
	below      methods // everything under item, for resources that connect

	// The paths under /watch, deprecated since Kubernetes 1.11.
	watchCollection methods
	watchEverywhere methods
	watchItem       methods
}

// The scopes in kube-apiserver's request metrics.
const (
	scopeCluster   = "cluster"
	scopeNamespace = "namespace"
	scopeResource  = "resource"
)

func newEndpoint(c Config, t target, described ResourceDescription, limiter *bodies.Limiter) *endpoint {
	if store := StoreOf(t.storage); store != nil && t.subresource == "" {
		LimitErrors(store)
		sharePrinter(store)
	}
	return &endpoint{namespaced: t.namespaced, within: described.within, routes: sync.OnceValue(func() *routes {
		scope, err := newScope(c, t, described.Kind)
		if err != nil {
			panic(t.bug(err))
		}
		if large, ok := t.storage.(LargeBodies); ok {
			most, together := large.MaxBody()
			scope.MaxRequestBodyBytes = max(scope.MaxRequestBodyBytes, most)
			limiter = bodies.NewRawLimiter(scope.MaxRequestBodyBytes, int(together))
		}
		b, err := newRouteBuilder(t, scope, limiter)
		if err != nil {
			panic(t.bug(err))
		}
		return newRoutes(c, b)
	})}
}

// newRoutes makes the routes that the storage of the target supports. These are the verbs of verbsOf.
func newRoutes(c Config, b *routeBuilder) *routes {
	e := &routes{item: b.item(c)}
	if b.subresource == "" {
		e.addCollection(c, b)
		e.addWatches(c, b)
	} else if post, ok := b.create(c); ok {
		e.item[http.MethodPost] = post
	}
	if connecter, ok := b.storage.(rest.Connecter); ok {
		e.addConnect(c, b, connecter)
	}
	return e
}

// addCollection adds the routes of the resource as a whole.
func (e *routes) addCollection(c Config, b *routeBuilder) {
	e.collection, e.everywhere = methods{}, methods{}
	_, isLister := b.storage.(rest.Lister)
	whole := scopeCluster
	if b.namespaced {
		whole = scopeNamespace
	}
	if isLister {
		e.collection[http.MethodGet] = b.list(c, request.MethodList, whole, false)
		if b.namespaced {
			e.everywhere[http.MethodGet] = b.list(c, request.MethodList, scopeCluster, false)
		}
	}
	if post, ok := b.create(c); ok {
		e.collection[http.MethodPost] = post
	}
	if handler := removeCollection(b.storage, b.scope, c.Admission); handler != nil {
		const verb = request.MethodDeleteCollection
		e.collection[http.MethodDelete] = b.route(verb, whole, handler, b.produced(verb, b.mediaTypes))
		if _, ok := b.storage.(CollectionDeleterEverywhere); ok {
			e.everywhere[http.MethodDelete] = b.route(verb, scopeCluster, handler, b.produced(verb, b.mediaTypes))
		}
	}
}

// addWatches adds the deprecated paths that only watch.
func (e *routes) addWatches(c Config, b *routeBuilder) {
	if _, ok := b.storage.(rest.Watcher); !ok {
		return
	}
	e.watchItem = methods{http.MethodGet: b.list(c, request.MethodWatch, scopeResource, true)}
	if _, ok := b.storage.(rest.Lister); !ok {
		return
	}
	whole := scopeCluster
	if b.namespaced {
		whole = scopeNamespace
		e.watchEverywhere = methods{http.MethodGet: b.list(c, request.MethodWatchList, scopeCluster, true)}
	}
	e.watchCollection = methods{http.MethodGet: b.list(c, request.MethodWatchList, whole, true)}
}

// addConnect adds the methods that the storage connects, to the item and, if it takes a path, to everything under it.
func (e *routes) addConnect(c Config, b *routeBuilder, connecter rest.Connecter) {
	_, takesPath, _ := connecter.NewConnectOptions()
	if takesPath {
		e.below = methods{}
	}
	handler := connect(connecter, b.path(), b.scope, c.Admission)
	for _, method := range connecter.ConnectMethods() {
		route := b.route(request.MethodConnect, scopeResource, handler, nil)
		e.item[method] = route
		if takesPath {
			e.below[method] = route
		}
	}
}

// routeBuilder makes the routes of one target: a verb's handler with its metrics, warnings and media types.
type routeBuilder struct {
	target
	scope      *handlers.RequestScope
	bodies     *bodies.Limiter
	lifecycle  lifecycle
	mediaTypes []string // of objects
	streams    []string // of objects and watches
}

func newRouteBuilder(t target, scope *handlers.RequestScope, limiter *bodies.Limiter) (*routeBuilder, error) {
	cycle, err := newLifecycle(t.group.Scheme, scope.Kind)
	if err != nil {
		return nil, err
	}
	objects, streams := negotiation.MediaTypesForSerializer(t.group.NegotiatedSerializer)
	return &routeBuilder{
		target:     t,
		scope:      scope,
		bodies:     limiter,
		lifecycle:  cycle,
		mediaTypes: objects,
		streams:    slices.Concat(objects, streams),
	}, nil
}

// item returns the routes of one object.
func (b *routeBuilder) item(c Config) methods {
	item := methods{}
	add := func(method, verb string, handler http.HandlerFunc) {
		if handler != nil {
			item[method] = b.route(verb, scopeResource, handler, b.produced(verb, b.mediaTypes))
		}
	}
	reported := request.MethodGet
	if override, ok := b.storage.(genericapi.StorageMetricsOverride); ok {
		reported = override.OverrideMetricsVerb(reported)
	}
	patches := patchTypes()
	if handler := get(b.storage, b.scope); handler != nil {
		item[http.MethodGet] = b.route(reported, scopeResource, handler, b.produced(request.MethodGet, b.mediaTypes))
	}
	add(http.MethodPut, request.MethodPut, unavailableOnOutage(update(b.storage, b.scope, c.Admission), c.DatastoreFailures))
	add(http.MethodPatch, request.MethodPatch, unavailableOnOutage(badPatch(patch(b.storage, b.scope, c.Admission, patches), nil), c.DatastoreFailures))
	add(http.MethodDelete, request.MethodDelete, unavailableOnOutage(remove(b.storage, b.scope, c.Admission), c.DatastoreFailures))
	if route, ok := item[http.MethodPatch]; ok {
		route.consumes = patches
		item[http.MethodPatch] = route
	}
	return item
}

// create returns the route of a POST, if the storage creates.
func (b *routeBuilder) create(c Config) (route, bool) {
	handler := unavailableOnOutage(create(b.storage, b.scope, c.Admission), c.DatastoreFailures)
	if handler == nil {
		return route{}, false
	}
	return b.route(request.MethodPost, scopeResource, handler, b.produced(request.MethodPost, b.mediaTypes)), true
}

func (b *routeBuilder) list(c Config, verb, metricScope string, watchOnly bool) route {
	return b.route(verb, metricScope, list(b.storage, b.scope, watchOnly, c.MinRequestTimeout), b.produced(verb, b.streams))
}

// produced returns the media types of a response: the storage's own for the verb, and the given ones.
func (b *routeBuilder) produced(verb string, types []string) []string {
	if own, ok := b.storage.(rest.StorageMetadata); ok {
		return slices.Concat(own.ProducesMIMETypes(verb), types)
	}
	return types
}

// route returns the route of a handler, with metrics for the verb and with the kind's warnings.
func (b *routeBuilder) route(verb, metricScope string, handler http.HandlerFunc, produces []string) route {
	if verb != request.MethodConnect {
		handler = b.bodies.Limit(handler, bodies.KindsOf(b.group.Scheme, b.scope.Kind))
	}
	return route{handler: b.lifecycle.wrap(b.measured(verb, metricScope, handler)), produces: produces}
}

// measured counts and times the handler's requests in the apiserver_request_* metrics.
func (b *routeBuilder) measured(verb, metricScope string, handler http.HandlerFunc) http.HandlerFunc {
	resource := b.version.WithResource(b.resource)
	return func(w http.ResponseWriter, r *http.Request) {
		Measure(w, r, verb, resource, b.subresource, metricScope, b.lifecycle.deprecated, b.lifecycle.removedRelease, handler)
	}
}

// Measure calls handler, and counts and times the request in the apiserver_request_* metrics when it has ended. It is upstream's
// metrics.InstrumentHandlerFunc for handlers that leave watches to a task. For the arguments see metrics.MonitorRequest.
func Measure(w http.ResponseWriter, r *http.Request, verb string, resource schema.GroupVersionResource, subresource, scope string,
	deprecated bool, removedRelease string, handler http.HandlerFunc,
) {
	received, ok := request.ReceivedTimestampFrom(r.Context())
	if !ok {
		received = time.Now()
	}
	response := &metrics.ResponseWriterDelegator{ResponseWriter: w}
	handler(responsewriter.WrapForHTTP1Or2(response), r)
	watchtask.AtEnd(r, func() {
		metrics.MonitorRequest(r, verb, resource.Group, resource.Version, resource.Resource, subresource, scope, metrics.APIServerComponent,
			deprecated, removedRelease, response.Status(), response.ContentLength(), time.Since(received))
	})
}
