package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/serviceaccount"
)

// ServiceAccounts issues service account tokens and publishes the keys that verify them.
type ServiceAccounts struct {
	// Issuer is named in every token.
	Issuer string
	// Key is the private key that signs tokens, of crypto/ecdsa or crypto/rsa; nil if another process signs them.
	Key any
	// Generator signs tokens.
	Generator serviceaccount.TokenGenerator
	// PublicKeys verify them: the signing key's and others.
	PublicKeys serviceaccount.PublicKeysGetter
	// MaxExpiration is the longest lifetime that a client may request for a token; 0 means no limit.
	MaxExpiration time.Duration
	// ExtendExpiration extends the lifetime of pods' tokens to MaxExtendedExpiration.
	ExtendExpiration      bool
	MaxExtendedExpiration time.Duration

	jwksURI string
}

// NewServiceAccounts builds a ServiceAccounts from completed options. ctx limits how long this takes; an external signer is used
// until running ends. An error means that a key file has no usable key, or that the signer can't be used.
func NewServiceAccounts(ctx, running context.Context, o *Options) (*ServiceAccounts, error) {
	serviceaccount.RegisterMetrics()
	flags := o.Authentication.ServiceAccounts
	if len(flags.Issuers) == 0 {
		return nil, errors.New("--service-account-issuer must not be empty")
	}
	if o.SigningEndpoint != "" {
		return newExternal(ctx, running, o)
	}
	key, public, err := signingKey(o.SigningKeyFile)
	if err != nil {
		return nil, errSigningKey(err)
	}
	generator, err := serviceaccount.JWTTokenGenerator(flags.Issuers[0], key)
	if err != nil {
		return nil, fmt.Errorf("signing service account tokens with the key in %s: %w", o.SigningKeyFile, err)
	}
	verifying := []any{public}
	for _, path := range flags.KeyFiles {
		keys, err := verifyingKeys(path)
		if err != nil {
			return nil, errKeyFile(err)
		}
		for _, key := range keys {
			if !slices.ContainsFunc(verifying, func(known any) bool { return equal(known, key) }) {
				verifying = append(verifying, key)
			}
		}
	}
	getter, err := serviceaccount.StaticPublicKeysGetter(verifying)
	if err != nil {
		return nil, fmt.Errorf("verifying service account tokens: %w", err)
	}
	return &ServiceAccounts{
		Issuer:                flags.Issuers[0],
		Key:                   key,
		Generator:             generator,
		PublicKeys:            getter,
		MaxExpiration:         flags.MaxExpiration,
		ExtendExpiration:      flags.ExtendExpiration,
		MaxExtendedExpiration: flags.MaxExtendedExpiration,
		jwksURI:               flags.JWKSURI,
	}, nil
}

// OpenIDHandlers returns the handlers of the documents for verifiers of tokens, by path: OpenID Connect Discovery 1.0, section 4, and
// the key set that it refers to (RFC 7517). address is the host and port at which clients reach this server; it is in the URL of the
// key set, unless --service-account-jwks-uri is set. It returns an error if the issuer is not an https URL, which has no such
// documents; the server works without them.
func (s *ServiceAccounts) OpenIDHandlers(address string) (map[string]OpenIDDocument, error) {
	provider, err := serviceaccount.NewOpenIDMetadataProvider(s.Issuer, s.jwksURI, address, s.PublicKeys)
	if err != nil {
		return nil, fmt.Errorf("token verifiers will not find keys at %s: %w", serviceaccount.OpenIDConfigPath, err)
	}
	return map[string]OpenIDDocument{
		serviceaccount.OpenIDConfigPath: {"application/json", provider.GetConfigJSON},
		serviceaccount.JWKSPath:         {"application/jwk-set+json", provider.GetKeysetJSON},
	}, nil
}

// OpenIDDocument serves a document for verifiers of tokens.
type OpenIDDocument struct {
	MediaType string
	get       func() (content []byte, maxAge int) // in seconds
}

// ServeHTTP sends the document, which may be cached.
func (d OpenIDDocument) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, maxAge := d.get()
	w.Header().Set("Content-Type", d.MediaType)
	w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", maxAge))
	if _, err := w.Write(content); err != nil {
		klog.FromContext(r.Context()).V(4).Info("Client left while reading", "path", r.URL.Path, "err", err)
	}
}
