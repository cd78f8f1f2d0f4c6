package server

import (
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/codecs"
)

// asking are the groups of resources that are created to ask something. They are not stored.
var asking = []string{"authentication.k8s.io", "authorization.k8s.io", changes.GroupVersion.Group}

// withReadOnly refuses everything but reads with Options.ReadOnly, also of the server's own clients.
func (s *Server) withReadOnly(next http.Handler) http.Handler {
	if s.options.ReadOnly == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, _ := request.RequestInfoFrom(r.Context())
		switch {
		case r.Method == http.MethodGet, r.Method == http.MethodHead, info != nil && info.Verb == "create" && info.Subresource == "" && slices.Contains(asking, info.APIGroup):
			next.ServeHTTP(w, r)
		default:
			err := apierrors.NewMethodNotSupported(changes.GroupVersion.WithResource("").GroupResource(), r.Method)
			err.ErrStatus.Message, err.ErrStatus.Details = s.options.ReadOnly, nil
			responsewriters.ErrorNegotiated(err, codecs.General(), changes.GroupVersion, w, r)
		}
	})
}
