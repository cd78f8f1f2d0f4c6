package server

import (
	"net/http"
	"strings"
	"unicode"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sqube/sqube/sqlstore"
)

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
// agent. Writes with an invalid name are rejected, except deletions, for which upstream ignores the name.
func fieldManager(r *http.Request) string {
	name := r.URL.Query().Get("fieldManager")
	if name != "" && len(metav1validation.ValidateFieldManager(name, nil)) == 0 {
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
