package handlers

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Handler returns a handler of every path under /api and /apis, except the list of groups, which includes those of other servers. It
// calls next for all other paths. Paths are not cleaned: one with "//" is never redirected. As in kube-apiserver,
// trailing slashes don't matter.
func (a *API) Handler(next http.Handler) http.Handler {
	legacy := a.legacyVersions()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rest, ok := strings.CutPrefix(r.URL.Path, "/api")
		switch {
		case !ok:
			next.ServeHTTP(w, r)
		case ended(rest):
			legacy.ServeHTTP(w, r)
		case rest[0] == '/':
			a.serveVersion(w, r, "", rest[1:])
		case strings.HasPrefix(rest, "s/"):
			group, rest := cut(rest[2:])
			switch {
			case group == "": // the core group, whose paths begin with /api
				a.serveUnknown(w, r)
			case ended(rest) && a.groups[group] != nil:
				a.groups[group].serve(w, r)
			default:
				a.serveVersion(w, r, group, rest)
			}
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// serveVersion serves a path below /api/ or /apis/GROUP/, which begins with a version.
func (a *API) serveVersion(w http.ResponseWriter, r *http.Request, group, path string) {
	name, rest := cut(path)
	version, ok := a.versions[schema.GroupVersion{Group: group, Version: name}]
	switch {
	case !ok:
		a.serveUnknown(w, r)
	case ended(rest):
		version.discovery.serve(w, r)
	default:
		version.endpoints().find(rest).serve(w, r)
	}
}

// serveUnknown serves a path that is not in a built-in version. Custom resources can't be in built-in groups.
func (a *API) serveUnknown(w http.ResponseWriter, r *http.Request) {
	rest, isGroup := strings.CutPrefix(r.URL.Path, "/apis/")
	if isGroup {
		group, _, _ := strings.Cut(rest, "/")
		if a.groups[group] == nil {
			custom := a.config.Custom.ServeHTTP
			if r.Method == http.MethodPatch {
				conversionFailures := func() uint64 { return a.config.CustomConversionFailures(group) }
				custom = badPatch(custom, conversionFailures)
			}
			if r.Method != http.MethodGet {
				custom = a.bodies.Limit(unavailableOnOutage(custom, a.config.DatastoreFailures), nil)
			}
			custom(w, r)
			return
		}
	}
	methods(nil).serve(w, r)
}

// cut splits a path that does not begin with a slash into its first segment and the rest after the next slash.
func cut(path string) (segment, rest string) {
	segment, rest, _ = strings.Cut(path, "/")
	return segment, rest
}

// ended reports whether the rest of a path is empty, apart from slashes.
func ended(rest string) bool { return strings.Trim(rest, "/") == "" }

// find returns the methods of a path below a version, or nil if it does not exist:
//
//	RESOURCE[/NAME[/SUBRESOURCE[/…]]]
//	namespaces/NAMESPACE/RESOURCE[/NAME[/SUBRESOURCE[/…]]]
//	watch/RESOURCE[/NAME]
//	watch/namespaces/NAMESPACE/RESOURCE[/NAME]
//
// A namespace may be empty, which means all namespaces. A name may be empty if more segments follow; the verbs reject it.
//
// The path of a Namespace is also the prefix of other objects' paths. RequestInfo distinguishes the two by the words status and
// finalize, so namespaced resources can't have these names.
func (v endpoints) find(path string) methods {
	first, rest := cut(path)
	switch {
	case ended(rest):
		return v.whole(first)
	case first == "watch":
		return v.findWatch(rest)
	case first != "namespaces":
		return v.findIn(false, first, rest)
	}
	_, rest = cut(rest)
	if ended(rest) {
		return v[first].itemIn(false, "")
	}
	resource, rest := cut(rest)
	if (resource == "status" || resource == "finalize") && ended(rest) {
		return v[first+"/"+resource].itemIn(false, "")
	}
	return v.findIn(true, resource, rest)
}

// findIn is find for a resource, namespaced or not, and the rest of its path.
func (v endpoints) findIn(namespaced bool, resource, rest string) methods {
	if ended(rest) {
		return v.collectionIn(namespaced, resource)
	}
	_, rest = cut(rest)
	if ended(rest) {
		return v[resource].itemIn(namespaced, "")
	}
	subresource, below := cut(rest)
	return v[resource+"/"+subresource].itemIn(namespaced, below)
}

// findWatch is find for a path below watch.
func (v endpoints) findWatch(path string) methods {
	resource, rest := cut(path)
	namespaced := false
	if resource == "namespaces" {
		_, inside := cut(rest)
		if name, behind := cut(inside); name != "" {
			namespaced, resource, rest = true, name, behind
		}
	}
	e := v[resource]
	if e == nil {
		return nil
	}
	_, behind := cut(rest)
	switch {
	case ended(rest) && e.namespaced && !namespaced:
		return e.routes().watchEverywhere
	case e.namespaced != namespaced || !ended(behind):
		return nil
	case ended(rest):
		return e.routes().watchCollection
	default:
		return e.routes().watchItem
	}
}

// A path without a namespace does not match a namespaced resource, and vice versa.

// whole returns the methods of a resource in all namespaces.
func (v endpoints) whole(resource string) methods {
	if e := v[resource]; e != nil && e.namespaced {
		return e.routes().everywhere
	}
	return v.collectionIn(false, resource)
}

func (v endpoints) collectionIn(namespaced bool, resource string) methods {
	if e := v[resource]; e != nil && (e.namespaced == namespaced || e.within) {
		return e.routes().collection
	}
	return nil
}

// itemIn returns the methods of an item, or of the paths below it if below is not empty.
func (e *endpoint) itemIn(namespaced bool, below string) methods {
	switch {
	case e == nil || e.namespaced != namespaced:
		return nil
	case !ended(below):
		return e.routes().below
	default:
		return e.routes().item
	}
}
