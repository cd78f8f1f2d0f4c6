package server

import (
	"net/http"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/sqlstore"
)

// managerParameter is the query parameter that names the field manager.
const managerParameter = "fieldManager"

// withAuthor sets the user and the field manager that the store records with a write.
func withAuthor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			next.ServeHTTP(w, r)
			return
		}
		author := sqlstore.Author{FieldManager: fieldManager(r)}
		if user, ok := request.UserFrom(r.Context()); ok {
			author.User = user.GetName()
		}
		next.ServeHTTP(w, r.WithContext(sqlstore.WithAuthor(r.Context(), author)))
	})
}

// fieldManager returns the name under which managedFields records the request: the given one, or the first part of the user
// agent. It returns "" for an invalid name, since such a write is rejected.
func fieldManager(r *http.Request) string {
	if name := r.URL.Query().Get(managerParameter); name != "" {
		if len(invalidManager(name)) > 0 {
			return ""
		}
		return name
	}
	agent, _, _ := strings.Cut(r.UserAgent(), "/")
	printable := strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return -1
	}, strings.ToValidUTF8(agent, ""))
	return strings.ToValidUTF8(printable[:min(len(printable), metav1validation.FieldManagerMaxLength)], "")
}

func invalidManager(name string) field.ErrorList {
	return metav1validation.ValidateFieldManager(name, field.NewPath(managerParameter))
}

// checkManager rejects deletions whose field manager has an invalid name, like upstream's handlers reject other writes. Upstream
// ignores the field manager of a deletion; here the log records it.
func checkManager(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := request.RequestInfoFrom(r.Context()); ok && info.IsResourceRequest && info.Subresource != "proxy" && r.Method == http.MethodDelete {
			if errs := invalidManager(r.URL.Query().Get(managerParameter)); len(errs) > 0 {
				err := apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
				codecs.WriteError(w, r, err)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
