package server

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apifilters "k8s.io/apiserver/pkg/endpoints/filters"

	"github.com/sqube/sqube/server/audit"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/connections"
	"github.com/sqube/sqube/server/sharedkeys"
	"github.com/sqube/sqube/sqlstore"
)

// Fleet is what a server hosts beside its own cluster.
type Fleet interface {
	// Door returns a handler that serves the requests for hosted clusters, and leaves others to next, the handler of the host.
	Door(next http.Handler) http.Handler
	// Admission returns an admission that checks writes of Clusters and ClusterPools too, before or after next.
	Admission(next admission.Interface, authorizer authorizer.Authorizer) admission.Interface
	// Named reports whether a host name is that of a hosted cluster, or could be.
	Named(host string) bool
	// Subresources returns a handler that serves the subresources of Clusters, for users who may do so, and leaves others to next.
	Subresources(next http.Handler) http.Handler
	// Run hosts the clusters of a ready host until ctx ends, and returns when all of them have stopped.
	Run(ctx context.Context, host *Server) error
}

// Hosted is what a cluster has from the server that hosts it. The cluster has no port: it gets requests by Server.ServeHTTP.
type Hosted struct {
	// Connections are those of the host, on which the requests come.
	Connections *connections.Connections
	// URL is where clients reach the cluster.
	URL string
	// CA has the certificates that verify the server at URL, in PEM.
	CA []byte
	// Sealer encrypts the cluster's keys, which are in its database.
	Sealer *sharedkeys.Sealer
	// Audit records the requests.
	Audit *audit.Log
	// Answered returns when no request runs any more, or with the error of ctx.
	Answered func(ctx context.Context) error
}

// filesInMemory reports whether the server has no files for its keys.
func (o *Options) filesInMemory() bool { return o.InMemory || o.Hosted != nil }

// hostedParts is the part of the memory for long lists that each hosted cluster may use.
const hostedParts = 8

func (o *Options) memoryParts() int {
	if o.Hosted != nil {
		return hostedParts
	}
	return 1
}

// ServeHTTP serves a request that has come to the host's port.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Connections are those on which requests come.
func (s *Server) Connections() *connections.Connections { return s.connections }

// AuditOf returns the part of the audit log that is about a hosted cluster: NAMESPACE/NAME.
func (s *Server) AuditOf(cluster string) *audit.Log { return s.audit.Of(cluster) }

// ServingCA returns the certificates that verify the server, in PEM.
func (s *Server) ServingCA() ([]byte, error) { return s.pki.Trusted() }

// Fresh reports whether the server's database had just been created.
func (s *Server) Fresh() bool { return s.fresh }

// Store is the server's store.
func (s *Server) Store() *sqlstore.Store { return s.store }

// Changes is the log of the server's changes.
func (s *Server) Changes() *changes.Log { return s.history.log }

// Serving ends when the server begins to drain.
func (s *Server) Serving() context.Context { return s.phase.serving }

// ExternalURL is the URL at which clients on other machines reach the server, if it listens on an address that they can reach.
func (s *Server) ExternalURL() string {
	if bound := s.options.Serving.BindAddress; s.options.ExternalHost == "" && bound != nil && bound.IsLoopback() {
		return s.options.URL()
	}
	return "https://" + s.options.address()
}

// Watches reports whether a request is a watch.
func Watches(r *http.Request) bool {
	info, err := requestInfo.NewRequestInfo(r)
	return err == nil && info.Verb == "watch"
}

// Lasts reports whether a request may last: it is a watch, or a connection into a pod, or follows a log.
func Lasts(r *http.Request) bool {
	info, err := requestInfo.NewRequestInfo(r)
	return err == nil && longRunning(r, info)
}

// Authorizer decides what the users of the server may do.
func (s *Server) Authorizer() authorizer.Authorizer { return s.authorization.Authorizer }

// Unauthorized refuses requests to hosted clusters of nobody whom they or this server know, as a server refuses its own.
func (s *Server) Unauthorized() http.Handler {
	handler := apifilters.WithCacheControl(apifilters.Unauthorized(codecs.General()))
	return apifilters.WithAuditInit(apifilters.WithRequestInfo(s.connections.Admit(handler), requestInfo))
}

// Keyring has the public keys that verify what the cluster itself has issued. All of it may be known to everybody.
type Keyring struct {
	// CA verifies client certificates, Accounts tokens of service accounts: each is a public key in PKIX form.
	CA       []byte `json:"ca"`
	Accounts []byte `json:"accounts"`
}

// Keyring returns the server's.
func (s *Server) Keyring() (k Keyring, err error) {
	if k.CA, err = s.pki.CAPublicKey(); err != nil {
		return k, err
	}
	key, ok := s.accounts.Key.(crypto.Signer)
	if !ok {
		return k, errors.New("another process signs the tokens of service accounts")
	}
	k.Accounts, err = x509.MarshalPKIXPublicKey(key.Public())
	return k, err
}

// Visitors recognizes the users of this server when they use a cluster that it hosts, under the names that they have there. It never recognizes
// anonymous users, or those whom a front proxy names.
func (s *Server) Visitors() authenticator.Request {
	names := s.authentication.RequestHeader
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if names != nil {
			headerrequest.ClearAuthenticationHeaders(r.Header, names.UsernameHeaders, names.UIDHeaders, names.GroupHeaders, names.ExtraHeaderPrefixes)
		}
		r = r.WithContext(authenticator.WithAudiences(r.Context(), s.authentication.Audiences))
		response, ok, err := s.authentication.Authenticator.AuthenticateRequest(r)
		if err != nil || !ok || anonymous(response.User) {
			return nil, false, err
		}
		return &authenticator.Response{User: Guest(response.User)}, true, nil
	})
}

func anonymous(who user.Info) bool {
	return who.GetName() == user.Anonymous || slices.Contains(who.GetGroups(), user.AllUnauthenticated)
}

// hostPrefix comes before names of users and groups of the host that begin with "system:", since each cluster has others of these names, and
// before those that begin with hostPrefix, so that no two users have one name.
const hostPrefix = "host:"

// Guest returns a user of the host as the clusters know them: without a UID, and without what Kubernetes says of a token in
// extra fields, which is about objects of the host.
func Guest(who user.Info) *user.DefaultInfo {
	made := &user.DefaultInfo{Name: NameInside(who.GetName())}
	for _, group := range who.GetGroups() {
		if group != user.AllAuthenticated {
			made.Groups = append(made.Groups, NameInside(group))
		}
	}
	made.Groups = append(made.Groups, user.AllAuthenticated)
	for key, values := range who.GetExtra() {
		if domain, _, _ := strings.Cut(key, "/"); reserved(domain) {
			continue
		}
		if made.Extra == nil {
			made.Extra = map[string][]string{}
		}
		made.Extra[key] = slices.Clone(values)
	}
	return made
}

// NameInside returns the name that a user or a group of the host has in a cluster.
func NameInside(name string) string {
	if strings.HasPrefix(name, "system:") || strings.HasPrefix(name, hostPrefix) {
		return hostPrefix + name
	}
	return name
}

// reserved reports whether a domain is one of Kubernetes' own.
func reserved(domain string) bool {
	for _, own := range []string{"kubernetes.io", "k8s.io"} {
		if domain == own || strings.HasSuffix(domain, "."+own) {
			return true
		}
	}
	return false
}

type visitorKey struct{}

// WithVisitor returns a request to a cluster whose user the host has recognized.
func WithVisitor(r *http.Request, who user.Info) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), visitorKey{}, who))
}

// visitors recognizes those whom the host has recognized, and leaves all others to the cluster.
type visitors struct{ own authenticator.Request }

// AuthenticateRequest implements authenticator.Request.
func (v visitors) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if who, ok := r.Context().Value(visitorKey{}).(user.Info); ok {
		return &authenticator.Response{User: who}, true, nil
	}
	return v.own.AuthenticateRequest(r)
}
