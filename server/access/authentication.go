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

// Cluster is what authenticators and authorizers read from.
type Cluster struct {
	// Client reaches the server's own API; see package loopback.
	Client kubernetes.Interface
	// Informers are over Client. The caller starts them.
	Informers informers.SharedInformerFactory
	// ServerID is the identity of this server process in metrics.
	ServerID string
	// Egress connects to OpenID issuers and webhooks; nil to connect directly.
	Egress *egressselector.EgressSelector
}

// Authentication identifies callers.
type Authentication struct {
	// Authenticator recognizes, in this order: in-process clients, front proxies, client certificates, the bearer
	// tokens of a file, of service accounts, of bootstrap secrets, of OpenID Connect and of a webhook. Everyone else
	// is anonymous, if that is allowed.
	Authenticator authenticator.Request
	// Audiences are the valid audiences of tokens.
	Audiences authenticator.Audiences
	// ClientCA has the CAs of client certificates, both of clients and of front proxies. If it is a
	// dynamiccertificates.ControllerRunner, running it keeps it up to date with the files.
	ClientCA dynamiccertificates.CAContentProvider
	// UserCA has only the CAs of users' certificates, as published for extension API servers.
	UserCA dynamiccertificates.CAContentProvider
	// RequestHeader specifies which front proxies may name users, and in which headers.
	RequestHeader *authenticatorfactory.RequestHeaderConfig
}

// NewAuthentication builds an Authentication from completed options. It accepts tokens of the given service accounts. Authenticators
// that watch files do so until ctx ends. An error means that a file named by a flag is invalid.
func NewAuthentication(ctx context.Context, o *Options, accounts *ServiceAccounts, c Cluster) (*Authentication, error) {
	// kube-apiserver fills in parts of its server configuration; these structs receive the results.
	var (
		info    genericapiserver.AuthenticationInfo
		serving genericapiserver.SecureServingInfo
		v2      common.Config
		v3      common.OpenAPIV3Config
	)
	// Without a getter, kube-apiserver would read the key files itself, in fewer formats.
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

// proxyHeaders returns the headers in which a front proxy names a user.
func proxyHeaders(c *authenticatorfactory.RequestHeaderConfig) func() []string {
	if c == nil {
		return func() []string { return nil }
	}
	return c.UsernameHeaders.Value
}
