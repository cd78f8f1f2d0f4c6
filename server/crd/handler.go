package crd

import (
	"context"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/conversion"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/finalizer"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/versioning"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	genericapi "k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/metrics"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/tools/cache"

	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/server/watchtask"
	"github.com/sqube/sqube/sqlstore"
)

// ServeHTTP serves custom resources, and the discovery of custom group versions, under /apis. A request for an undefined resource
// gets 404, or 503 while HasSynced is false; so does one for a resource in a reserved group. It needs the request's RequestInfo.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if info, _ := request.RequestInfoFrom(r.Context()); info.IsResourceRequest && !reserved(info.APIGroup) {
		s.serveResource(w, r, info)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "apis" && len(parts) == 3 {
		s.serveVersion(w, r, schema.GroupVersion{Group: parts[1], Version: parts[2]})
		return
	}
	s.notFound.ServeHTTP(w, r)
}

func (s *Server) serveResource(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	if writesProtobuf(r) {
		accepted := []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML}
		if utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage) {
			accepted = append(accepted, runtime.ContentTypeCBOR)
		}
		codecs.WriteError(w, r, negotiation.NewUnsupportedMediaTypeError(accepted))
		return
	}
	name := info.Resource + "." + info.APIGroup
	if err := s.awaitDefinition(r.Context(), name, info.APIVersion); err != nil {
		codecs.WriteError(w, r, err)
		return
	}
	defer watchtask.AtEnd(r, s.inUse.begin(name))
	// Upstream's handler would respond with 500 if the definition can't be read.
	if d, err := s.informer.Lister().Get(name); err == nil {
		if _, err := s.inUse.await(r.Context(), d); err != nil && !apierrors.IsNotFound(err) {
			codecs.WriteError(w, r, err)
			return
		}
	}
	s.reads.handler(info)(w, r)
}

// definitionTimeout limits how long a request waits for a stored definition, which takes the informer milliseconds to see.
const definitionTimeout = 5 * time.Second

// awaitDefinition returns when the server has seen the version of a definition that is stored and established, or there is none.
// Otherwise a client that has seen it, or an object that another server took, would get 404 here.
func (s *Server) awaitDefinition(ctx context.Context, name, version string) error {
	if s.sees(name, version) || !s.HasSynced() {
		return nil
	}
	ctx, cancel := context.WithTimeout(sqlstore.WithTransaction(ctx, nil), definitionTimeout) // what is not committed is not served
	defer cancel()
	const unread = "unread"
	for read := unread; ; {
		changed := s.changed.next()
		seen, err := s.informer.Lister().Get(name)
		if err == nil && serves(seen, version) {
			return nil
		}
		state := ""
		if err == nil {
			state = seen.ResourceVersion
		}
		if state != read { // it may be another one that is stored now
			d, err := s.whole.read(ctx, name)
			if apierrors.IsNotFound(err) || err == nil && !serves(d, version) {
				return nil
			}
			if err != nil {
				return err
			}
			read = state
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err := apierrors.NewServiceUnavailable("this server has not seen the definition " + name + " yet, try again")
			err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
			return err
		}
	}
}

// changes tells those who wait that the informer has got something.
type changes struct {
	mu      sync.Mutex
	waiting chan struct{} // nil if nobody waits
}

// next returns a channel that is closed at the next change.
func (c *changes) next() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == nil {
		c.waiting = make(chan struct{})
	}
	return c.waiting
}

func (c *changes) tell() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting != nil {
		close(c.waiting)
		c.waiting = nil
	}
}

// sees reports whether the informer has a definition that serves the version.
func (s *Server) sees(name, version string) bool {
	d, err := s.informer.Lister().Get(name)
	return err == nil && serves(d, version)
}

// serves reports whether a definition is established and has the version among those served.
func serves(d definition, version string) bool {
	return apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) && apihelpers.HasServedCRDVersion(d, version)
}

// writesProtobuf reports whether the body is protobuf, which custom resources do not support. Upstream's handler would panic.
func writesProtobuf(r *http.Request) bool {
	if r.Method != http.MethodPost && r.Method != http.MethodPut {
		return false
	}
	mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && mediaType == runtime.ContentTypeProtobuf
}

// serveVersion responds with the resources of a group version.
func (s *Server) serveVersion(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	definitions := s.catalog.serving(gv)
	if len(definitions) == 0 {
		s.notFound.ServeHTTP(w, r)
		return
	}
	list := func() []metav1.APIResource { return describeLegacy(definitions, gv) }
	discovery.NewAPIVersionHandler(codecs.General(), gv, discovery.APIResourceListerFunc(list)).ServeHTTP(w, r)
}

// reads serves gets, lists and watches of custom resources from stored bytes, if the request is for the storage version.
// Upstream's handler owns the storages and serves all other requests; reads limits the errors in its answers to writes.
type reads struct {
	definitions listers.CustomResourceDefinitionLister
	storages    finalizer.CRClientGetter
	converters  *conversion.CRConverterFactory
	others      http.HandlerFunc
	minTimeout  time.Duration // of watches

	mu   sync.Mutex
	made map[string]readHandlers // by the name of the definition
}

// readHandlers belong to one storage, which upstream's handler made for one state of a definition.
type readHandlers struct {
	handlers.CustomReads
	storage *customresource.REST
}

func (s *reads) handler(info *request.RequestInfo) http.HandlerFunc {
	if info.Subresource == "" && slices.Contains([]string{"create", "update", "patch"}, info.Verb) {
		s.limitErrors(info)
		return s.others
	}
	if info.Subresource != "" || !slices.Contains([]string{"get", "list", "watch"}, info.Verb) {
		return s.others
	}
	d, err := s.definitions.Get(info.Resource + "." + info.APIGroup)
	if err != nil || !servesAsStored(d, info) {
		return s.others
	}
	storages, err := s.storages.GetCustomResourceListerCollectionDeleter(d)
	if err != nil {
		return s.others
	}
	// Upstream's handler may serve a slightly older state of the definition.
	storage, ok := storages.(*customresource.REST)
	if !ok || storage.New().GetObjectKind().GroupVersionKind().Version != info.APIVersion {
		return s.others
	}
	made, err := s.handlersOf(d, storage)
	if err != nil {
		return s.others
	}
	switch info.Verb {
	case "get":
		return made.Get
	case "list":
		return made.List
	default:
		return made.Watch
	}
}

// limitErrors prepares the storage of a write. There is none before the definition is established, which upstream would log as an error.
func (s *reads) limitErrors(info *request.RequestInfo) {
	d, err := s.definitions.Get(info.Resource + "." + info.APIGroup)
	if err != nil || !apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) {
		return
	}
	storages, err := s.storages.GetCustomResourceListerCollectionDeleter(d)
	if err != nil {
		return
	}
	if storage, ok := storages.(*customresource.REST); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		handlers.LimitErrors(storage.Store)
	}
}

// measured records metrics of requests like upstream's handler.
func measured(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		info, _ := request.RequestInfoFrom(r.Context())
		resource := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
		handlers.Measure(w, r, strings.ToUpper(info.Verb), resource, "", metrics.CleanScope(info), false, "", next)
	}
}

// servesAsStored reports whether upstream's handler would serve the request without a warning, and in the storage version. If a
// webhook converts objects of other versions, errors in the middle of a list are so likely that the list must be complete before
// it is sent, and watches must report them.
func servesAsStored(d definition, info *request.RequestInfo) bool {
	namespaced := d.Spec.Scope == apiextensionsv1.NamespaceScoped
	if namespaced != (info.Namespace != "") && !(namespaced && info.Verb != "get") {
		return false
	}
	if !apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established) || d.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
		return false
	}
	for _, v := range d.Spec.Versions {
		if v.Name == info.APIVersion {
			return v.Storage && v.Served && !v.Deprecated
		}
	}
	return false
}

// handlersOf returns the handlers of the definition, whose objects are in storage.
func (s *reads) handlersOf(d definition, storage *customresource.REST) (readHandlers, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if made, ok := s.made[d.Name]; ok && made.storage == storage {
		return made, nil
	}
	converter, _, err := s.converters.NewConverter(d)
	if err != nil {
		return readHandlers{}, err
	}
	serving := codecs.Serving()
	kind := storage.New().GetObjectKind().GroupVersionKind()
	scope := &genericapi.RequestScope{
		Namer: genericapi.ContextBasedNaming{
			Namer:         runtime.Namer(meta.NewAccessor()),
			ClusterScoped: d.Spec.Scope == apiextensionsv1.ClusterScoped,
		},
		Serializer:       serving,
		Convertor:        converter, // converts the names of fields in selectors
		Typer:            crdserverscheme.NewUnstructuredObjectTyper(),
		TableConvertor:   storage,
		Resource:         kind.GroupVersion().WithResource(d.Spec.Names.Plural),
		Kind:             kind,
		HubGroupVersion:  kind.GroupVersion(),
		MetaGroupVersion: metav1.SchemeGroupVersion,
	}
	for _, t := range serving.SupportedMediaTypes() {
		if t.MediaType != runtime.ContentTypeProtobuf {
			scope.StandardSerializers = append(scope.StandardSerializers, t)
		}
	}
	made := readHandlers{storage: storage}
	made.CustomReads = handlers.NewCustomReads(storage, scope, eventSerializer{serving, converter}, s.minTimeout, s.others, measured)
	s.made[d.Name] = made
	return made, nil
}

// eventSerializer encodes watches like upstream's handler: events and errors as they are, and objects by the converter.
type eventSerializer struct {
	runtime.NegotiatedSerializer
	converter runtime.ObjectConvertor
}

// EncoderForVersion implements runtime.NegotiatedSerializer.
func (s eventSerializer) EncoderForVersion(encoder runtime.Encoder, version runtime.GroupVersioner) runtime.Encoder {
	scheme := apiserver.Scheme
	return versioning.NewCodec(encoder, nil, s.converter, scheme, scheme, scheme, version, nil, "custom resources")
}

// follow removes the handlers of deleted definitions, and tells of all changes.
func (s *reads) follow(informer cache.SharedInformer, changed *changes) error {
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { changed.tell() },
		UpdateFunc: func(_, _ any) { changed.tell() },
		DeleteFunc: func(o any) {
			changed.tell()
			if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
				s.forget(name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch custom resource definitions: %w", err)
	}
	return nil
}

// forget removes the handlers of a definition.
func (s *reads) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.made, name)
}
