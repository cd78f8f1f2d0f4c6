package handlers

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/sqube/sqube/server/codecs"
)

// route is the handler of one method on one path, and its media types.
type route struct {
	handler  http.HandlerFunc
	consumes []string // nil for any
	produces []string // nil for any
}

// methods are the routes of one path. A nil map means that the path doesn't exist.
type methods map[string]route

// ReadOnly returns a handler of a path and those below it. The path, with any number of slashes at its end, can be read in one media
// type; other requests are refused like by kube-apiserver's router. If consumes is not empty, it is the only Content-Type of requests.
func ReadOnly(path string, handler http.Handler, produces, consumes string) http.Handler {
	one := route{handler: handler.ServeHTTP, produces: []string{produces}}
	if consumes != "" {
		one.consumes = []string{consumes}
	}
	document := methods{http.MethodGet: one}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !ended(strings.TrimPrefix(r.URL.Path, path)) {
			methods(nil).serve(w, r)
			return
		}
		document.serve(w, r)
	})
}

// serve calls the route of the request, or rejects the request like kube-apiserver's router, with a Status: 404 for an unknown
// path, then 405, 415 and 406 in this order.
func (m methods) serve(w http.ResponseWriter, r *http.Request) {
	if len(m) == 0 {
		refuse(w, r, http.StatusNotFound, "")
		return
	}
	route, ok := m[r.Method]
	switch {
	case !ok:
		refuse(w, r, http.StatusMethodNotAllowed, "")
	case route.consumes != nil && !consumable(r, route.consumes):
		refuse(w, r, http.StatusUnsupportedMediaType, "415: Unsupported Media Type")
	case route.produces != nil && !accepted(r.Header.Get("Accept"), route.produces):
		refuse(w, r, http.StatusNotAcceptable, fmt.Sprintf("406: Not Acceptable\n\nAvailable representations: %s",
			strings.Join(route.produces, ", ")))
	default:
		route.handler(w, r)
	}
}

// refuse sends a Status with the code. The message is used only if the code has no standard message.
func refuse(w http.ResponseWriter, r *http.Request, code int, message string) {
	err := apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", message, 0, false)
	responsewriters.ErrorNegotiated(err, codecs.General(), schema.GroupVersion{}, w, r)
}

// consumable reports whether the route accepts the media type of the request. A GET may omit the type.
func consumable(r *http.Request, types []string) bool {
	header := r.Header.Get("Content-Type")
	return header == "" && r.Method == http.MethodGet || anyMediaType(header, types)
}

// everything has the media type that accepts anything in an Accept header.
var everything = []string{"*/*"}

// accepted reports whether an Accept header accepts one of the types. An empty header accepts anything.
func accepted(header string, types []string) bool {
	return header == "" || anyMediaType(header, types) || anyMediaType(header, everything)
}

// anyMediaType reports whether a header's list of media types has one of the types. As in kube-apiserver's router,
// parameters are ignored and ranges are not: "application/*" matches nothing.
func anyMediaType(header string, types []string) bool {
	for item := range strings.SplitSeq(header, ",") {
		name, _, _ := strings.Cut(item, ";")
		if slices.Contains(types, strings.Trim(name, " ")) {
			return true
		}
	}
	return false
}
