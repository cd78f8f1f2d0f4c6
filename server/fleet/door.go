package fleet

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/codecs"
)

// Door implements server.Fleet.
func (f *Fleet) Door(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, inside, ok := f.addressed(r)
		if !ok {
			next.ServeHTTP(w, f.others().receive(r))
			return
		}
		f.serve(w, inside, name)
	})
}

// addressed returns the cluster that a request is for, and the request as the cluster gets it.
func (f *Fleet) addressed(r *http.Request) (name types.NamespacedName, inside *http.Request, ok bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, PathPrefix)
	if !ok {
		return name, nil, false
	}
	namespace, rest, _ := strings.Cut(rest, "/")
	cluster, _, _ := strings.Cut(rest, "/")
	if namespace == "" || cluster == "" {
		return name, nil, false
	}
	prefix := PathPrefix + namespace + "/" + cluster
	inside = new(http.Request)
	*inside = *r
	inside.URL = new(url.URL)
	*inside.URL = *r.URL
	inside.URL.Path = "/" + strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, prefix), "/")
	if r.URL.RawPath != "" {
		inside.URL.RawPath = "/" + strings.TrimPrefix(strings.TrimPrefix(r.URL.RawPath, prefix), "/")
	}
	inside.RequestURI = inside.URL.RequestURI()
	return types.NamespacedName{Namespace: namespace, Name: cluster}, inside, true
}

// serve wakes the cluster and passes the request on.
func (f *Fleet) serve(w http.ResponseWriter, r *http.Request, name types.NamespacedName) {
	select {
	case <-f.hosting:
	case <-r.Context().Done():
		return
	}
	c := f.find(name)
	if c == nil {
		codecs.WriteError(w, r, apierrors.NewUnauthorized("Unauthorized")) // as in a cluster that does not know the user
		return
	}
	peers := f.others()
	r = peers.receive(r)
	watches := server.Watches(r)
	if watches && c.await(r) {
		endWatch(w, r)
		return
	}
	var s *server.Server
	var leave func()
	var err error
	for again := true; again; again = errors.As(err, new(*Elsewhere)) {
		prefix := PathPrefix + name.Namespace + "/" + name.Name
		if peers.passOn(w, r, c, prefix+r.URL.Path, prefixed(prefix, r.URL.RawPath)) {
			return
		}
		s, leave, err = c.enter(r.Context(), watches)
	}
	switch {
	case err != nil:
		codecs.WriteError(w, r, apierrors.NewServiceUnavailable("the cluster can't be woken up: "+err.Error()))
	default:
		defer leave()
		if watches {
			defer c.watching(r)()
		}
		s.ServeHTTP(w, r)
	}
}

// prefixed returns a path under another, "" if there is none.
func prefixed(prefix, path string) string {
	if path == "" {
		return ""
	}
	return prefix + path
}
