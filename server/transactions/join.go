package transactions

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/transaction"
	"github.com/sqube/sqube/sqlstore"
)

// Join lets requests with the header of an open transaction join it. They have been authorized already, as those of any client. Requests that
// a transaction can't have are refused.
func (r *REST) Join(next http.Handler, longRunning request.LongRunningRequestCheck) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name := req.Header.Get(transaction.Header)
		if name == "" {
			next.ServeHTTP(w, req)
			return
		}
		ctx := req.Context()
		info, _ := request.RequestInfoFrom(ctx)
		user, _ := request.UserFrom(ctx)
		refuse := func(err error) {
			w.Header().Set(transaction.RefusedHeader, strings.Trim(strconv.QuoteToASCII(err.Error()), `"`))
			codecs.WriteError(w, req, err)
		}
		if info == nil || user == nil || !info.IsResourceRequest {
			next.ServeHTTP(w, req)
			return
		}
		joins, why := r.joins(info, longRunning(req, info))
		if why != "" {
			refuse(apierrors.NewBadRequest(fmt.Sprintf("%s can't be in transaction %s: %s", info.Path, name, why)))
			return
		}
		if !joins {
			next.ServeHTTP(w, req)
			return
		}
		found, done, err := r.opened.of(name, user.GetName())
		if err != nil {
			refuse(err)
			return
		}
		defer done()
		if !reads(info) {
			found.writing.Lock()
			defer found.writing.Unlock()
		}
		audit.AddAuditAnnotation(ctx, NameAnnotation, name)
		next.ServeHTTP(w, req.WithContext(sqlstore.WithTransaction(ctx, found.Transaction)))
	})
}

func reads(info *request.RequestInfo) bool { return info.Verb == "get" || info.Verb == "list" }

// joins reports whether a request joins the transaction that it names, or else why it is refused.
func (r *REST) joins(info *request.RequestInfo, longRunning bool) (joins bool, why string) {
	_, served := r.Served.KindOf(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
	switch {
	case info.Verb == "watch":
		return false, "it would wait for what others do, such as controllers, and they see nothing of a transaction before it is committed"
	case longRunning:
		return false, "it would wait for a Pod, and nothing of a transaction runs before it is committed"
	case info.APIGroup == changes.GroupVersion.Group:
		if !reads(info) {
			return false, "transactions, undos and queries are requests of their own"
		}
		return false, ""
	case slices.Contains(changes.Reviews, info.APIGroup): // what is asked there is outside of transactions
		return false, ""
	case !served && !reads(info):
		return false, "this server does not store such objects"
	case !reads(info) && info.Subresource != "" && !slices.Contains(subresources, info.Subresource):
		return false, "only objects, and their status, scale and finalizers, can be written"
	}
	return served, ""
}
