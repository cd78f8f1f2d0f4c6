package access

import (
	"context"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/sqube/sqube/server/loopback"
)

// Cluster is what authenticators and authorizers look things up in.
type Cluster struct {
	// Client reaches the server's own API, see package loopback.
	Client kubernetes.Interface
	// Informers are over Client. Listers are taken from them here; the caller starts them.
	Informers informers.SharedInformerFactory
	// ServerID is the identity of this server process in metrics.
	ServerID string
	// Egress connects to OpenID issuers and webhooks; nil to connect directly.
	Egress *egressselector.EgressSelector
}

// Authentication tells who a caller is.
type Authentication struct {
	// Authenticator recognizes, in this order: in-process clients, front proxies, client certificates, the bearer
	// tokens of a file, of service accounts, of bootstrap secrets, of OpenID Connect and of a webhook; and takes
	// everyone else for anonymous, if that is allowed.
	Authenticator authenticator.Request
	// Audiences are what a token must be issued for.
	Audiences authenticator.Audiences
	// ClientCA holds the authorities that TLS asks client certificates of: that of clients and that of front proxies.
	// If it is a dynamiccertificates.ControllerRunner, running it keeps it up to date with the files.
	ClientCA dynamiccertificates.CAContentProvider
	// UserCA holds only those whose certificates name users, as published for extension API servers.
	UserCA dynamiccertificates.CAContentProvider
	// RequestHeader says whom to believe about whom in which headers.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
}

// NewAuthentication builds it from completed options, and knows the tokens of the given service accounts. Authenticators that keep something up to date do so until ctx ends.
// An error means that a file given by a flag does not hold what it should.
func NewAuthentication(ctx context.Context, o *Options, accounts *ServiceAccounts, c Cluster) (*Authentication, error) {
	// kube-apiserver fills in parts of its server configuration; as plain structs they serve to receive the results.
	var (
		info    genericapiserver.AuthenticationInfo
		serving genericapiserver.SecureServingInfo
		v2      common.Config
		v3      common.OpenAPIV3Config
	)
	// Its own reader of key files knows fewer forms.
	options, keys := *o.Authentication, *o.Authentication.ServiceAccounts
	keys.KeyFiles, keys.ExternalPublicKeysGetter = nil, accounts.PublicKeys
	options.ServiceAccounts = &keys
	err := options.ApplyTo(ctx, &info, &serving, c.Egress, &v2, &v3, c.Client, c.Informers, c.ServerID)
	if err != nil {
		return nil, fmt.Errorf("setting up authentication: %w", err)
	}
	return &Authentication{
		Authenticator: union.New(loopback.Authenticator, newCertificates(info.Authenticator, proxyHeaders(info.RequestHeaderConfig))),
		Audiences:     info.APIAudiences,
		ClientCA:      serving.ClientCA,
		UserCA:        o.Authentication.ClientCert.CAContentProvider,
		RequestHeader: info.RequestHeaderConfig,
	}, nil
}

// proxyHeaders returns the headers by which a front proxy names a user.
func proxyHeaders(c *authenticatorfactory.RequestHeaderConfig) func() []string {
	if c == nil {
		return func() []string { return nil }
	}
	return c.UsernameHeaders.Value
}
