package access

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer/modes"
	"k8s.io/kubernetes/pkg/serviceaccount"

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
	getter := tokenGetter(c)
	keys.OptionalTokenGetter = func(informers.SharedInformerFactory) serviceaccount.ServiceAccountTokenGetter { return getter }
	options.ServiceAccounts = &keys
	err := options.ApplyTo(ctx, &info, &serving, c.Egress, &v2, &v3, c.Client, c.Informers, c.ServerID)
	if err != nil {
		return nil, fmt.Errorf("setting up authentication: %w", err)
	}
	recognized := info.Authenticator
	if o.TrustsIssuers() {
		recognized = &freshKeys{next: recognized, options: o.aboutIssuers(), own: keys.Issuers, cluster: c, audiences: info.APIAudiences, ctx: ctx}
	}
	tokens, err := newRevocation(recognized, o, getter, c)
	if err != nil {
		return nil, fmt.Errorf("setting up authentication: %w", err)
	}
	return &Authentication{
		Authenticator: union.New(loopback.Authenticator, newCertificates(tokens, proxyHeaders(info.RequestHeaderConfig))),
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

// Authorization decides what a caller may do.
type Authorization struct {
	// Authorizer lets system:masters do everything and asks the configured authorizers about everyone else.
	Authorizer authorizer.Authorizer
	// RBAC means that one of the authorizers is RBAC.
	RBAC bool
	// Rules lists what a caller may do in a namespace, for SelfSubjectRulesReview.
	Rules authorizer.RuleResolver
}

// NewAuthorization builds an Authorization from completed options. The authorizers Node and RBAC need the informers of c to run. With
// --authorization-config the file is read again when it changes, until ctx ends. An error means that a file named by a flag is
// invalid.
func NewAuthorization(ctx context.Context, o *Options, c Cluster) (*Authorization, error) {
	config, err := o.Authorization.ToAuthorizationConfig(c.Informers)
	if err == nil && c.Egress != nil {
		config.CustomDial, err = c.Egress.Lookup(egressselector.ControlPlane.AsNetworkContext())
	}
	if err != nil {
		return nil, fmt.Errorf("setting up authorization: %w", err)
	}
	auth, rules, err := config.New(ctx, c.ServerID)
	if err != nil {
		return nil, fmt.Errorf("setting up authorization: %w", err)
	}
	rbac := slices.ContainsFunc(config.AuthorizationConfiguration.Authorizers, func(a apiserver.AuthorizerConfiguration) bool {
		return string(a.Type) == modes.ModeRBAC
	})
	if rbac {
		awaited := awaitRoles(auth, rules, c.Informers)
		auth, rules = awaited, awaited
	}
	return &Authorization{Authorizer: auth, RBAC: rbac, Rules: rules}, nil
}
