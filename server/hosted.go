package server

import (
	"context"
	"net/http"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sqube/sqube/server/changes"
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
	// Users recognizes the users of the host. Optional.
	Users authenticator.Request
	// Answered returns when no request runs any more, or with the error of ctx.
	Answered func(ctx context.Context) error
}

// filesInMemory reports whether the server has no files for its keys.
func (o *Options) filesInMemory() bool { return o.InMemory || o.Hosted != nil }

// ServeHTTP serves a request that has come to the host's port.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Users recognizes the users of this server who are not anonymous.
func (s *Server) Users() authenticator.Request { return known{s.authentication.Authenticator} }

// Connections are those on which requests come.
func (s *Server) Connections() *connections.Connections { return s.connections }

// ServingCA returns the certificates that verify the server, in PEM.
func (s *Server) ServingCA() ([]byte, error) { return s.pki.Trusted() }

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

// Credentials returns a kubeconfig of a hosted cluster with a client certificate for a user in groups.
func (s *Server) Credentials(user string, groups []string, lifetime time.Duration) ([]byte, error) {
	return s.pki.Kubeconfig(s.options.Hosted.URL, user, groups, lifetime)
}

// known leaves out those who are anonymous.
type known struct{ next authenticator.Request }

// AuthenticateRequest implements authenticator.Request.
func (k known) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	response, ok, err := k.next.AuthenticateRequest(r)
	if err != nil || !ok || anonymous(response.User) {
		return nil, false, err
	}
	return response, true, nil
}

func anonymous(who user.Info) bool { return who.GetName() == user.Anonymous }

// hostedUsers recognizes those of a cluster and then those of its host.
type hostedUsers struct{ own, host authenticator.Request }

// hostPrefix comes before names of users and groups of the host that begin with "system:", since the cluster has others of these names.
const hostPrefix = "host:"

// AuthenticateRequest implements authenticator.Request.
func (h hostedUsers) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	own, ok, failed := h.own.AuthenticateRequest(r)
	if failed == nil && ok && !anonymous(own.User) {
		return own, true, nil
	}
	response, hosts, err := h.host.AuthenticateRequest(r)
	if err != nil || !hosts {
		return own, ok, failed
	}
	return &authenticator.Response{User: Guest(response.User)}, true, nil
}

// Guest returns who a user of the host is in a hosted cluster.
func Guest(of user.Info) user.Info {
	who := &user.DefaultInfo{Name: NameInside(of.GetName()), Extra: of.GetExtra()}
	for _, group := range of.GetGroups() {
		if group != user.AllAuthenticated {
			who.Groups = append(who.Groups, NameInside(group))
		}
	}
	who.Groups = append(who.Groups, user.AllAuthenticated)
	return who
}

// NameInside returns the name that a user or a group of the host has in a cluster.
func NameInside(name string) string {
	if strings.HasPrefix(name, "system:") {
		return hostPrefix + name
	}
	return name
}
