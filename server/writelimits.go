package server

import (
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/loopback"
	"github.com/sqube/sqube/server/writelimits"
	"github.com/sqube/sqube/sqlstore"
)

// withWriteLimits refuses what a limit of the user does not allow. The server's own requests have no limits, except those that it sends on behalf
// of a user.
func (s *Server) withWriteLimits(next http.Handler) http.Handler {
	if s.limiter == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.limiter.Any() {
			next.ServeHTTP(w, r)
			return
		}
		ctx := r.Context()
		info, ok := request.RequestInfoFrom(ctx)
		caller, known := request.UserFrom(ctx)
		_, onBehalf := ctx.Value(onBehalfKey{}).(sqlstore.Author)
		if !ok || !known || !info.IsResourceRequest || loopback.Made(r) && !onBehalf {
			next.ServeHTTP(w, r)
			return
		}
		impersonator, _ := ctx.Value(impersonatorKey{}).(user.Info)
		err := s.limiter.Check(ctx, &writelimits.Request{
			User: caller, Impersonator: impersonator, Verb: info.Verb, Group: info.APIGroup, Resource: info.Resource, Subresource: info.Subresource,
			Namespace: info.Namespace, Name: info.Name, DryRun: slices.Contains(r.URL.Query()["dryRun"], "All"),
		})
		if err != nil {
			codecs.WriteError(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}
