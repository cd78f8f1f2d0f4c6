package server

import (
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// withExactGet lets a get of one object have resourceVersionMatch=Exact, like lists: the object as it was at that revision.
// Upstream's handlers ignore it.
func withExactGet(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery == "" || r.Method != http.MethodGet {
			next.ServeHTTP(w, r)
			return
		}
		info, ok := request.RequestInfoFrom(r.Context())
		query := r.URL.Query()
		if !ok || !info.IsResourceRequest || info.Verb != "get" || query.Get("resourceVersionMatch") != string(metav1.ResourceVersionMatchExact) {
			next.ServeHTTP(w, r)
			return
		}
		version := query.Get("resourceVersion")
		revision, err := strconv.ParseInt(version, 10, 64)
		if err != nil || revision <= 0 || info.Subresource != "" {
			codecs.WriteError(w, r, apierrors.NewBadRequest(fmt.Sprintf(
				"resourceVersionMatch=Exact is for the get of an object at a resourceVersion, not of %s at %q", info.Path, version)))
			return
		}
		next.ServeHTTP(w, r.WithContext(apistorage.WithRevision(r.Context(), revision)))
	})
}
