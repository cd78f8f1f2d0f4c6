package fleet

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sqube/sqube/server"
	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/console"
	"github.com/sqube/sqube/server/fleet/v1alpha1"
)

// Door implements server.Fleet.
func (f *Fleet) Door(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = f.receive(r)
		name, inside, ok := f.addressed(r)
		switch {
		case !ok:
			next.ServeHTTP(w, r)
		case inside.URL.Path == console.Path:
			http.Redirect(w, r, r.URL.Path+"/", http.StatusMovedPermanently)
		case console.Serves(inside.URL.Path) && !console.ServesTrials(inside.URL.Path), preflight(inside):
			next.ServeHTTP(w, inside) // these need no user, and are the same for all clusters, whether they exist or not
		default:
			f.serve(w, inside, name)
		}
	})
}

// preflight reports whether a browser asks whether it may send a request (CORS).
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" && r.Header.Get("Authorization") == "" &&
		(r.TLS == nil || len(r.TLS.PeerCertificates) == 0)
}

// addressed returns the cluster that a request is for, and the request as the cluster gets it. Requests with a path below PathPrefix that
// names no cluster are for none, and the host has nothing there.
func (f *Fleet) addressed(r *http.Request) (name types.NamespacedName, inside *http.Request, ok bool) {
	if name, ok := f.names.of(r); ok {
		return name, r, true
	}
	path := r.URL.EscapedPath() // in which a slash in a name is none
	rest, ok := strings.CutPrefix(path, PathPrefix)
	if !ok {
		name, ok = f.byToken(r)
		return name, r, ok
	}
	namespace, rest, _ := strings.Cut(rest, "/")
	cluster, _, _ := strings.Cut(rest, "/")
	if !valid(namespace, cluster) {
		return name, nil, false
	}
	rest = strings.TrimPrefix(rest[len(cluster):], "/")
	inside = new(http.Request)
	*inside = *r
	inside.URL = new(url.URL)
	*inside.URL = *r.URL
	inside.URL.RawPath = "/" + rest
	inside.URL.Path, _ = url.PathUnescape(inside.URL.RawPath) // never fails for a path that was escaped correctly
	inside.RequestURI = inside.URL.RequestURI()
	return types.NamespacedName{Namespace: namespace, Name: cluster}, inside, true
}

// valid reports whether a cluster can have the names.
func valid(namespace, name string) bool {
	return len(validation.ValidateNamespaceName(namespace, false)) == 0 && len(validation.NameIsDNSSubdomain(name, false)) == 0
}

// serve wakes the cluster for a caller who may wake it, and passes the request on.
func (f *Fleet) serve(w http.ResponseWriter, r *http.Request, name types.NamespacedName) {
	select {
	case <-f.hosting:
	case <-r.Context().Done():
		return
	}
	c := f.find(name)
	who := f.guard.recognize(r, c)
	switch {
	case who == nil:
		refusedRequests.WithLabelValues(refusedUnauthorized).Inc()
		f.guard.refuse.ServeHTTP(w, r)
		return
	case c == nil && who.user != nil:
		codecs.WriteError(w, r, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource(resource).GroupResource(), name.String()))
		return
	case who.unproved && (c == nil || c.current() == nil) && !f.guard.tokens.Allow():
		codecs.WriteError(w, r, apierrors.NewTooManyRequests("too many requests without proof of their user wake clusters, please try again later", 1))
		return
	case c == nil:
		refusedRequests.WithLabelValues(refusedUnauthorized).Inc()
		f.guard.refuse.ServeHTTP(w, r)
		return
	}
	f.pass(w, r, c, who)
}

// sandbox keeps pages that a cluster's Services, Pods and aggregated API servers send from what the console, which is at the same address, has
// in the browser. It is the value of the header Content-Security-Policy.
const sandbox = "sandbox allow-scripts allow-forms allow-popups allow-downloads"

// pass passes a request on to a cluster.
func (f *Fleet) pass(w http.ResponseWriter, r *http.Request, c *cluster, who *caller) {
	watches := server.Watches(r)
	end, err := c.limited().begin(watches)
	if err != nil {
		refusedRequests.WithLabelValues(refusedLimit).Inc()
		codecs.WriteError(w, r, err)
		return
	}
	defer end()
	prefix := PathPrefix + c.name.Namespace + "/" + c.name.Name
	var s *server.Server
	var leave func()
	for again := true; again; again = errors.As(err, new(*Elsewhere)) {
		if f.others().passOn(w, r, c, prefix+r.URL.Path, prefixed(prefix, r.URL.RawPath)) {
			return
		}
		if watches && c.await(r) {
			endWatch(w, r)
			return
		}
		s, leave, err = c.enter(r.Context(), watches || who.unproved)
	}
	switch {
	case errors.Is(err, errGone):
		codecs.WriteError(w, r, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource(resource).GroupResource(), c.name.String()))
	case err != nil:
		refusedRequests.WithLabelValues(refusedAsleep).Inc()
		// The log has the error, which may name files.
		codecs.WriteError(w, r, apierrors.NewServiceUnavailable("the cluster can't be woken up now: its status.message says why"))
	default:
		defer leave()
		w.Header().Set("Content-Security-Policy", sandbox)
		defer c.traffic.begin(watches)()
		if watches {
			defer c.watching(r)()
		}
		if who.user != nil {
			r = server.WithVisitor(r, who.user)
		}
		if !server.Lasts(r) {
			stand, err := f.seats.sit(r.Context(), c.name)
			if err != nil {
				return // the client has gone
			}
			defer stand()
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
