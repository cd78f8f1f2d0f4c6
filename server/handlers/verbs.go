package handlers

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/sqube/sqube/server/stack"
)

// The handlers of reads have no state and are made once.

// get serves one object, or the result of a getter with options for the path and query.
func get(storage rest.Storage, scope *handlers.RequestScope) http.HandlerFunc {
	if getter, ok := storage.(rest.GetterWithOptions); ok {
		return handlers.GetResourceWithOptions(getter, scope, scope.Subresource != "")
	}
	if getter, ok := storage.(rest.Getter); ok {
		return preferRaw(storage, scope, handlers.GetResource(getter, scope), func(raw *registry.Store) http.HandlerFunc {
			return getRaw(raw, scope)
		})
	}
	return nil
}

// list serves a list, or a watch if the query or the path (watchOnly) requests one.
func list(storage rest.Storage, scope *handlers.RequestScope, watchOnly bool, minTimeout time.Duration) http.HandlerFunc {
	lister, _ := storage.(rest.Lister)
	watcher, _ := storage.(rest.Watcher)
	watch := watchInTurns(storage, lister, watcher, scope, watchOnly, minTimeout)
	if watchOnly {
		return watch
	}
	list := handlers.ListResource(lister, watcher, scope, watchOnly, minTimeout)
	list = preferRawTables(storage, scope, list, func(converted *registry.Store) http.HandlerFunc {
		return handlers.ListResource(converted, watcher, scope, watchOnly, minTimeout)
	})
	list = preferRaw(storage, scope, list, func(raw *registry.Store) http.HandlerFunc {
		return handlers.ListResource(raw, watcher, scope, watchOnly, minTimeout)
	})
	list = gzipped(list)
	return func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && info.Verb == "watch" {
			watch(w, r)
			return
		}
		list(w, r)
	}
}

// unpooled makes encoders without a buffer. With one, a watch would keep a buffer as large as its largest event until it ends.
type unpooled struct{ runtime.NegotiatedSerializer }

func (u unpooled) EncoderForVersion(encoder runtime.Encoder, version runtime.GroupVersioner) runtime.Encoder {
	return struct{ runtime.Encoder }{u.NegotiatedSerializer.EncoderForVersion(encoder, version)}
}

// The handlers of writes are made for every request: each call of the function that upstream returns wraps the captured admission
// again, so a handler that is kept would grow with every request, and race.

// create serves a POST to a collection, or to a subresource that is created under its object's name.
func create(storage rest.Storage, scope *handlers.RequestScope, admit admission.Interface) http.HandlerFunc {
	if creater, ok := storage.(rest.NamedCreater); ok {
		return func(w http.ResponseWriter, r *http.Request) {
			handlers.CreateNamedResource(namedCreater{creater}, scope, admit)(w, r)
		}
	}
	if creater, ok := storage.(rest.Creater); ok {
		answers := answersOf(storage, scope)
		return func(w http.ResponseWriter, r *http.Request) {
			hidden := &hiddenFields{Interface: admit}
			handlers.CreateResource(answeredCreater{creater, answers.to(r), hidden}, scope, hidden)(w, r)
		}
	}
	return nil
}

// update serves a PUT.
func update(storage rest.Storage, scope *handlers.RequestScope, admit admission.Interface) http.HandlerFunc {
	updater, ok := storage.(rest.Updater)
	if !ok {
		return nil
	}
	answers := answersOf(storage, scope)
	return func(w http.ResponseWriter, r *http.Request) {
		hidden := &hiddenFields{Interface: admit}
		handlers.UpdateResource(answeredUpdater{updater, answers.to(r), hidden}, scope, hidden)(w, r)
	}
}

// patchTypes are the media types of patches of built-in kinds.
func patchTypes() []string {
	patches := []string{
		string(types.JSONPatchType),
		string(types.MergePatchType),
		string(types.StrategicMergePatchType),
		string(types.ApplyYAMLPatchType),
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.CBORServingAndStorage) {
		patches = append(patches, string(types.ApplyCBORPatchType))
	}
	return patches
}

// patch serves a PATCH of one of the given types, which includes server-side apply.
func patch(storage rest.Storage, scope *handlers.RequestScope, admit admission.Interface, patches []string) http.HandlerFunc {
	patcher, ok := storage.(rest.Patcher)
	if !ok {
		return nil
	}
	answers := answersOf(storage, scope)
	return func(w http.ResponseWriter, r *http.Request) {
		hidden := &hiddenFields{Interface: admit}
		storage := answeredPatcher{patcher, answeredUpdater{patcher, answers.to(r), hidden}}
		r, scope := unmanaged(r, scope)
		handlers.PatchResource(storage, scope, hidden, patches)(w, r)
	}
}

// remove serves a DELETE of one object.
func remove(storage rest.Storage, scope *handlers.RequestScope, admit admission.Interface) http.HandlerFunc {
	deleter, ok := storage.(rest.GracefulDeleter)
	if !ok {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		handlers.DeleteResource(deleter, true, scope, admit)(w, r)
	}
}

// removeCollection serves a DELETE of every object that the query selects.
func removeCollection(storage rest.Storage, scope *handlers.RequestScope, admit admission.Interface) http.HandlerFunc {
	deleter, ok := storage.(rest.CollectionDeleter)
	if !ok {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		handlers.DeleteCollection(deleter, true, scope, admit)(w, r)
	}
}

// connect serves a connection through the storage.
func connect(connecter rest.Connecter, path string, scope *handlers.RequestScope, admit admission.Interface) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		handlers.ConnectResource(connecter, scope, admit, path, scope.Subresource != "")(w, r)
	}
}

// stackCreater makes the empty object at the beginning of each creation. Upstream's handlers start a goroutine for each write, in which
// this method and that of answeredUpdater are sqube's first code to run.
type stackCreater struct{ runtime.ObjectCreater }

func (c stackCreater) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	stack.Write()
	return c.ObjectCreater.New(kind)
}
