// Package access does authentication and authorization, and issues and verifies service account tokens. All of it is
// kube-apiserver's own code, with kube-apiserver's own flags; this package adds defaults, so that no flag is required.
//
// Order of use: [NewOptions], [Options.AddFlags], [Options.Complete], [Options.Validate], then [NewServiceAccounts],
// [NewAuthentication] and [NewAuthorization].
package access

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer/modes"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/sqube/sqube/server/flagcheck"
	"github.com/sqube/sqube/server/pki"
)

const (
	// DefaultIssuer is the issuer of service account tokens, and their audience, unless --service-account-issuer or --api-audiences
	// override it.
	DefaultIssuer = "https://kubernetes.default.svc.cluster.local"

	minTokenExpiration = time.Hour
	maxTokenExpiration = (1 << 32) * time.Second
)

// Options hold the flags of kube-apiserver for authentication, authorization and service account tokens.
type Options struct {
	Authentication *kubeoptions.BuiltInAuthenticationOptions
	Authorization  *kubeoptions.BuiltInAuthorizationOptions
	// SigningKeyFile is --service-account-signing-key-file.
	SigningKeyFile string
	// SigningEndpoint is --service-account-signing-endpoint.
	SigningEndpoint string
}

// NewOptions returns kube-apiserver's defaults. Where kube-apiserver has none, or one that no cluster uses, it returns those of a
// kubeadm cluster: the authorizers Node and RBAC, an issuer, and the headers of a front proxy.
func NewOptions() *Options {
	o := &Options{
		Authentication: kubeoptions.NewBuiltInAuthenticationOptions().WithAll(),
		Authorization:  kubeoptions.NewBuiltInAuthorizationOptions(),
	}
	o.Authentication.ServiceAccounts.Issuers = []string{DefaultIssuer}
	front := o.Authentication.RequestHeader
	front.UsernameHeaders = []string{"X-Remote-User"}
	front.GroupHeaders = []string{"X-Remote-Group"}
	front.ExtraHeaderPrefixes = []string{"X-Remote-Extra-"}
	front.AllowedNames = []string{pki.FrontProxyName}
	o.Authorization.Modes = []string{modes.ModeNode, modes.ModeRBAC}
	return o
}

// AddFlags adds the flags to fs under kube-apiserver's names.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.Authentication.AddFlags(fs)
	o.Authorization.AddFlags(fs)
	fs.StringVar(&o.SigningKeyFile, "service-account-signing-key-file", o.SigningKeyFile,
		"File with the private key that signs service account tokens. If unset, the server creates one under --data-dir.")
	fs.StringVar(&o.SigningEndpoint, "service-account-signing-endpoint", o.SigningEndpoint,
		"Unix socket of a process that signs service account tokens and has the keys to verify them. It replaces "+
			"--service-account-signing-key-file and --service-account-key-file. Token Secrets then stay empty.")
	for name, usage := range map[string]string{
		"authorization-mode": "Ordered list of authorizers: AlwaysAllow, AlwaysDeny, ABAC, Webhook, RBAC, Node. Has no effect with " +
			"--authorization-config.",
		"client-ca-file": "File with CAs whose client certificates are accepted, in addition to the server's own CA under --data-dir. " +
			"The common name is the user, the organizations are the groups.",
		"service-account-key-file": "File with public or private keys that verify service account tokens, in addition to the signing key. " +
			"May be repeated.",
		"service-account-lookup": "Require that the service account of a token, and the object a token is bound to, still exist.",
		"service-account-issuer": "Issuer of service account tokens, an https URL. May be repeated: new tokens name the first one, and all " +
			"are accepted.",
	} {
		fs.Lookup(name).Usage = usage
	}
}

// Files are the defaults of flags that name files.
type Files struct {
	ClientCA          string // CA of client certificates; also trusted if --client-ca-file is set
	FrontProxyCA      string // CA of front proxies, for --requestheader-client-ca-file
	ServiceAccountKey string // private key, for --service-account-signing-key-file
}

// Complete sets the options that no flag has set. An error means that a file with certificates cannot be read.
func (o *Options) Complete(f Files) error {
	if o.SigningKeyFile == "" && o.SigningEndpoint == "" {
		o.SigningKeyFile = f.ServiceAccountKey
	}
	if o.Authentication.RequestHeader.ClientCAFile == "" {
		o.Authentication.RequestHeader.ClientCAFile = f.FrontProxyCA
	}
	if err := o.completeClientCA(f.ClientCA); err != nil {
		return err
	}
	o.Authentication.ApplyAuthorization(o.Authorization)
	return nil
}

// completeClientCA trusts both the operator's CA and the server's own, so that the kubeconfigs that the server has written stay
// valid. The files are read again when they change.
func (o *Options) completeClientCA(own string) error {
	cert := o.Authentication.ClientCert
	provider, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", own)
	if err != nil {
		return fmt.Errorf("reading the CA of client certificates: %w", err)
	}
	if cert.ClientCA == "" || cert.ClientCA == own {
		cert.CAContentProvider = provider
		return nil
	}
	operators, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-file", cert.ClientCA)
	if err != nil {
		return errClientCA(err)
	}
	cert.CAContentProvider = dynamiccertificates.NewUnionCAContentProvider(provider, operators)
	return nil
}

func errClientCA(err error) error {
	return fmt.Errorf("--client-ca-file must name a readable file with certificates in PEM: %w", err)
}

// Validate returns all problems with the flags as one error, including files that can't be opened. It may be called before Complete,
// so that nothing is created for a server that will not start, and again after it.
func (o *Options) Validate() error {
	var errs flagcheck.Problems
	for _, f := range o.files() {
		errs.Readable(f.flag, f.path)
	}
	for _, mode := range o.Authorization.Modes {
		errs.Unless(modes.IsValidAuthorizationMode(mode), "--authorization-mode %q must be one of %s", mode, strings.Join(modes.AuthorizationModeChoices, ", "))
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // upstream's checks would fail for the same files and modes
	}
	errs = slices.Concat(o.validateAuthentication(), o.Authorization.Validate())
	errs.Unless(o.SigningEndpoint == "" || o.SigningKeyFile == "" && len(o.Authentication.ServiceAccounts.KeyFiles) == 0,
		"--service-account-signing-endpoint must not be given with --service-account-signing-key-file or --service-account-key-file")
	d := o.Authentication.ServiceAccounts.MaxExpiration
	errs.Unless(d == 0 || d >= minTokenExpiration && d <= maxTokenExpiration, "--service-account-max-token-expiration must be between 1 hour and 2^32 seconds, not %s", d)
	return errors.Join(errs...)
}

// validateAuthentication runs upstream's checks, which require a file with service account keys. Here the signing key is enough.
func (o *Options) validateAuthentication() []error {
	authentication, accounts := *o.Authentication, *o.Authentication.ServiceAccounts
	if len(accounts.KeyFiles) == 0 {
		accounts.KeyFiles = []string{o.SigningKeyFile}
	}
	authentication.ServiceAccounts = &accounts
	return authentication.Validate()
}

type fileFlag struct{ flag, path string }

func (o *Options) files() []fileFlag {
	files := []fileFlag{
		{"authentication-config", o.Authentication.AuthenticationConfigFile},
		{"authentication-token-webhook-config-file", o.Authentication.WebHook.ConfigFile},
		{"authorization-config", o.Authorization.AuthorizationConfigurationFile},
		{"authorization-policy-file", o.Authorization.PolicyFile},
		{"authorization-webhook-config-file", o.Authorization.WebhookConfigFile},
		{"client-ca-file", o.Authentication.ClientCert.ClientCA},
		{"oidc-ca-file", o.Authentication.OIDC.CAFile},
		{"requestheader-client-ca-file", o.Authentication.RequestHeader.ClientCAFile},
		{"service-account-signing-key-file", o.SigningKeyFile},
		{"token-auth-file", o.Authentication.TokenFile.TokenFile},
	}
	for _, path := range o.Authentication.ServiceAccounts.KeyFiles {
		files = append(files, fileFlag{"service-account-key-file", path})
	}
	return files
}
