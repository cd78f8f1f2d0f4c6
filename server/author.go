package server

import (
	"context"
	"net"
	"net/http"
	"strings"
	"unicode"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/uuid"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/loopback"
	"github.com/sqube/sqube/server/undo"
	"github.com/sqube/sqube/sqlstore"
)

// impersonatorKey is the key of the user who was authenticated, if they impersonate another.
type impersonatorKey struct{}

// withImpersonator notes for withAuthor who was authenticated if they impersonate somebody, which replaces them.
func withImpersonator(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if by, ok := request.UserFrom(r.Context()); ok && r.Header.Get(authenticationv1.ImpersonateUserHeader) != "" {
			r = r.WithContext(context.WithValue(r.Context(), impersonatorKey{}, by))
		}
		next.ServeHTTP(w, r)
	})
}

// onBehalfKey is the key of the author of the request because of which the server sends one to itself.
type onBehalfKey struct{}

// chosen precedes in history what a client has chosen but only the server can vouch for: an audit id, which could be that of another request,
// and the field manager of undos, whose changes others leave alone.
const chosen = "client:"

// withAuthor sets what the store records about the author of a write.
func (s *Server) withAuthor(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			next.ServeHTTP(w, r)
			return
		}
		ctx := r.Context()
		author, onBehalf := ctx.Value(onBehalfKey{}).(sqlstore.Author)
		if !onBehalf {
			author.Address, _, _ = net.SplitHostPort(r.RemoteAddr) // not what headers say, which a client may set; "" within the process
			if by, ok := request.UserFrom(ctx); ok {
				if impersonator, impersonated := ctx.Value(impersonatorKey{}).(user.Info); impersonated {
					author.ImpersonatedUser, by = by.GetName(), impersonator
				}
				author.User, author.CredentialID = by.GetName(), credentialID(by)
			}
		}
		author.FieldManager, author.AuditID = fieldManager(r), ""
		given := r.Header.Get(auditinternal.HeaderAuditID) != ""
		if s.audit.Backend != nil || given { // which tells what belongs together, as in an undo
			author.AuditID = string(audit.GetAuditIDTruncated(ctx))
		}
		if !loopback.Made(r) {
			if given {
				author.AuditID = chosen + author.AuditID
			}
			if author.FieldManager == undo.Manager {
				author.FieldManager = chosen + undo.Manager
			}
		}
		next.ServeHTTP(w, r.WithContext(sqlstore.WithAuthor(ctx, author)))
	})
}

// onBehalf returns a configuration for requests to this server as the user of a request, with the audit id for these. What they write has the
// author of that request. If its client has chosen its audit id, theirs is another one, which the audit log then has too.
func (b *base) onBehalf(ctx context.Context) (*rest.Config, string, error) {
	caller, ok := request.UserFrom(ctx)
	if !ok {
		return nil, "", apierrors.NewUnauthorized("there is no user")
	}
	author, id := sqlstore.AuthorFrom(ctx), string(audit.GetAuditIDTruncated(ctx))
	if strings.HasPrefix(author.AuditID, chosen) {
		id = string(uuid.NewUUID())
		audit.AddAuditAnnotation(ctx, changes.GroupVersion.Group+"/audit-id", id)
	}
	return b.loopback.ConfigAs(caller, func(ctx context.Context) context.Context { return context.WithValue(ctx, onBehalfKey{}, author) }), id, nil
}

// maxCredentialID is longer than those of certificates and tokens. An authentication webhook can return anything.
const maxCredentialID = 128

// credentialID returns the id of what authenticated a user, such as a token's or the digest of a certificate; "" if it is not known.
func credentialID(u user.Info) string {
	if ids := u.GetExtra()[user.CredentialIDKey]; len(ids) > 0 && len(ids[0]) <= maxCredentialID {
		return ids[0]
	}
	return ""
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
