package handlers

import (
	"net/http"
	"strings"

	"github.com/gorilla/mux"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Register adds the routes under /api and /apis to a router, which must not clean paths (mux.Router.SkipClean): a path
// with "//" is answered as it is, never redirected. Every path under /api and /apis is answered here, but for the documents
// on groups, which take in those of other servers.
//
// As in kube-apiserver, slashes at the end of a path don't matter.
func (a *API) Register(router *mux.Router) {
	a.registerVersion(router.PathPrefix("/api/{version}").Subrouter())
	a.registerVersion(router.PathPrefix("/apis/{group}/{version}").Subrouter())
	router.HandleFunc("/api/{version}{end:/*}", a.serveVersion)
	router.HandleFunc("/apis/{group}/{version}{end:/*}", a.serveVersion)
	router.Handle("/api{end:/*}", a.legacyVersions())
	router.PathPrefix("/api/").HandlerFunc(a.serveUnknown)
	router.PathPrefix("/apis/").HandlerFunc(a.serveUnknown)
}

// registerVersion adds the routes of one group version. They are tried in order. A namespace may be empty, which means
// all of them, and a name that something follows may be, which the verbs refuse.
func (a *API) registerVersion(router *mux.Router) {
	// A Namespace is an object with a name, and also what the paths of other objects begin with. RequestInfo tells the
	// two apart by these two words, so no namespaced resource can be called by one of them.
	a.add(router, "/namespaces/{name:[^/]*}/{subresource:status|finalize}{end:/*}", subresourceOf("namespaces"), clusterItem)

	a.add(router, "/namespaces/{namespace:[^/]*}/{resource}/{name}{end:/*}", resource, namespacedItem)
	a.add(router, "/namespaces/{namespace:[^/]*}/{resource}{end:/*}", resource, namespacedCollection)
	a.add(router, "/namespaces/{namespace:[^/]*}/{resource}/{name:[^/]*}/{subresource}{below:(?:/.*)?}", subresource, namespacedItem)
	a.add(router, "/{resource}{end:/*}", resource, whole)

	a.add(router, "/watch/namespaces/{namespace:[^/]*}/{resource}/{name}{end:/*}", resource, watchNamespacedItem)
	a.add(router, "/watch/namespaces/{namespace:[^/]*}/{resource}{end:/*}", resource, watchNamespacedCollection)
	a.add(router, "/watch/{resource}/{name}{end:/*}", resource, watchClusterItem)
	a.add(router, "/watch/{resource}{end:/*}", resource, watchWhole)

	a.add(router, "/{resource}/{name}{end:/*}", resource, clusterItem)
	a.add(router, "/{resource}/{name:[^/]*}/{subresource}{below:(?:/.*)?}", subresource, clusterItem)
}

// vars are the parts of a path that a pattern names.
type vars map[string]string

// add routes a pattern to the methods that choose finds on the endpoint that find names.
func (a *API) add(router *mux.Router, pattern string, find func(vars) string, choose func(*endpoint, vars) methods) {
	router.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		found := vars(mux.Vars(r))
		version, ok := a.versions[schema.GroupVersion{Group: found["group"], Version: found["version"]}]
		if !ok {
			a.serveUnknown(w, r)
			return
		}
		var routes methods
		if endpoint, ok := version.endpoints[find(found)]; ok {
			routes = choose(endpoint, found)
		}
		routes.serve(w, r, a.refuse)
	})
}

// serveUnknown answers a path that no built-in version has. Built-in groups are never shared with custom resources.
func (a *API) serveUnknown(w http.ResponseWriter, r *http.Request) {
	rest, isGroup := strings.CutPrefix(r.URL.Path, "/apis/")
	if isGroup {
		group, _, _ := strings.Cut(rest, "/")
		if !a.groups[group] {
			custom := a.config.Custom.ServeHTTP
			if r.Method == http.MethodPatch {
				faults := func() uint64 { return a.config.CustomFaults(group) }
				custom = badPatch(custom, faults, a.config.Serializer, schema.GroupVersion{})
			}
			if r.Method != http.MethodGet {
				custom = notByOutage(custom, a.config.DatastoreFailures, a.config.Serializer, schema.GroupVersion{})
			}
			custom(w, r)
			return
		}
	}
	methods(nil).serve(w, r, a.refuse)
}

// How a path names an endpoint.

func resource(v vars) string { return v["resource"] }

func subresource(v vars) string { return v["resource"] + "/" + v["subresource"] }

func subresourceOf(resource string) func(vars) string {
	return func(v vars) string { return resource + "/" + v["subresource"] }
}

// Which methods of an endpoint a path has. A path without a namespace has none of a namespaced resource's objects, and
// the other way round.

func namespacedItem(e *endpoint, v vars) methods { return e.itemIn(true, v) }

func clusterItem(e *endpoint, v vars) methods { return e.itemIn(false, v) }

// itemIn returns the methods of an item, or of what is below it if the path goes on.
func (e *endpoint) itemIn(namespaced bool, v vars) methods {
	switch {
	case e.namespaced != namespaced:
		return nil
	case strings.Trim(v["below"], "/") != "":
		return e.below
	default:
		return e.item
	}
}

func namespacedCollection(e *endpoint, _ vars) methods {
	if !e.namespaced {
		return nil
	}
	return e.collection
}

func whole(e *endpoint, _ vars) methods {
	if e.namespaced {
		return e.everywhere
	}
	return e.collection
}

func watchNamespacedItem(e *endpoint, _ vars) methods {
	if !e.namespaced {
		return nil
	}
	return e.watchItem
}

func watchNamespacedCollection(e *endpoint, _ vars) methods {
	if !e.namespaced {
		return nil
	}
	return e.watchCollection
}

func watchClusterItem(e *endpoint, _ vars) methods {
	if e.namespaced {
		return nil
	}
	return e.watchItem
}

func watchWhole(e *endpoint, _ vars) methods {
	if e.namespaced {
		return e.watchEverywhere
	}
	return e.watchCollection
}
