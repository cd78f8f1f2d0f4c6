package access

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/util/keyutil"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/apis/authentication/validation"
	"k8s.io/kubernetes/pkg/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount/externaljwt/plugin"
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
		return nil, fmt.Errorf("--service-account-issuer must not be empty")
	}
	if o.SigningEndpoint != "" {
		return newExternal(ctx, running, o)
	}
	key, public, err := signingKey(o.SigningKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--service-account-signing-key-file must hold a private key in PEM: %w", err)
	}
	generator, err := serviceaccount.JWTTokenGenerator(flags.Issuers[0], key)
	if err != nil {
		return nil, fmt.Errorf("signing service account tokens with the key in %s: %w", o.SigningKeyFile, err)
	}
	verifying := []any{public}
	for _, path := range flags.KeyFiles {
		keys, err := verifyingKeys(path)
		if err != nil {
			return nil, fmt.Errorf("--service-account-key-file must hold keys in PEM: %w", err)
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

// Paths of the documents for verifiers of service account tokens: OpenID Connect Discovery 1.0, section 4, and the key set that it
// refers to (RFC 7517).
const (
	OpenIDConfigPath = serviceaccount.OpenIDConfigPath
	JWKSPath         = serviceaccount.JWKSPath
)

// OpenIDHandlers returns the handlers of [OpenIDConfigPath] and [JWKSPath], by path. address is the host and port at
// which clients reach this server; it is in the URL of the key set, unless --service-account-jwks-uri is set. It returns
// an error if the issuer is not an https URL, which has no such documents; the server works without them.
func (s *ServiceAccounts) OpenIDHandlers(address string) (map[string]http.Handler, error) {
	provider, err := serviceaccount.NewOpenIDMetadataProvider(s.Issuer, s.jwksURI, address, s.PublicKeys)
	if err != nil {
		return nil, fmt.Errorf("token verifiers will not find keys at %s: %w", OpenIDConfigPath, err)
	}
	return map[string]http.Handler{
		OpenIDConfigPath: document("application/json", provider.GetConfigJSON),
		JWKSPath:         document("application/jwk-set+json", provider.GetKeysetJSON),
	}, nil
}

// document serves what get returns, cacheable for the returned number of seconds.
func document(mediaType string, get func() (content []byte, maxAge int)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		content, maxAge := get()
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", maxAge))
		if _, err := w.Write(content); err != nil {
			klog.FromContext(r.Context()).V(4).Info("Client left while reading", "path", r.URL.Path, "err", err)
		}
	})
}

// signingKey returns the private key in a PEM file, RSA or ECDSA in PKCS #1, SEC 1 or PKCS #8, and its public key.
func signingKey(path string) (private, public any, err error) {
	private, err = keyutil.PrivateKeyFromFile(path)
	if err != nil {
		return nil, nil, err
	}
	public, err = publicKey(private)
	return private, public, err
}

// verifyingKeys returns the public keys in a PEM file, including those in certificates and private keys. Other blocks, such as EC
// PARAMETERS, are skipped.
//
// keyutil.PublicKeysFromFile, which kube-apiserver uses, does not support EC keys in PKCS #8, the format of openssl genpkey.
func verifyingKeys(path string) ([]any, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var keys []any
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		text := pem.EncodeToMemory(block)
		if found, err := keyutil.ParsePublicKeysPEM(text); err == nil {
			keys = append(keys, found...)
		} else if private, err := keyutil.ParsePrivateKeyPEM(text); err == nil {
			public, err := publicKey(private)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			keys = append(keys, public)
		}
	}
	if len(keys) == 0 {
		return nil, fmt.Errorf("%s holds no RSA or ECDSA key", path)
	}
	return keys, nil
}

func publicKey(private any) (any, error) {
	switch key := private.(type) {
	case *rsa.PrivateKey, *ecdsa.PrivateKey:
		return key.(crypto.Signer).Public(), nil
	}
	return nil, fmt.Errorf("a key of type %T can't sign service account tokens: use RSA or ECDSA", private)
}

// equal reports whether two public keys are the same.
func equal(a, b any) bool {
	key, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && key.Equal(b)
}

const (
	// signerTimeout is how long to wait for an external signer at the start, and for each later read of its keys, like upstream.
	signerTimeout = time.Minute
	// metadataTimeout is how long to wait for the signer's metadata at the start, like upstream.
	metadataTimeout = 10 * time.Second
)

// newExternal lets another process sign tokens (KEP-740, --service-account-signing-endpoint). It is used until running ends; ctx
// limits the start. Like upstream, tokens live no longer than the signer allows.
func newExternal(ctx, running context.Context, o *Options) (*ServiceAccounts, error) {
	flags := o.Authentication.ServiceAccounts
	asking, cancel := context.WithCancel(running)
	starting := context.AfterFunc(ctx, cancel)
	signer, keys, err := plugin.New(asking, flags.Issuers[0], o.SigningEndpoint, signerTimeout, false)
	if err != nil || !starting() {
		cancel()
		return nil, fmt.Errorf("--service-account-signing-endpoint %s: %w", o.SigningEndpoint, errors.Join(err, ctx.Err()))
	}
	bounded, done := context.WithTimeout(ctx, metadataTimeout)
	defer done()
	metadata, err := signer.GetServiceMetadata(bounded)
	if err != nil {
		cancel()
		return nil, fmt.Errorf("--service-account-signing-endpoint %s: %w", o.SigningEndpoint, err)
	}
	longest := time.Duration(metadata.MaxTokenExpirationSeconds) * time.Second
	switch {
	case metadata.MaxTokenExpirationSeconds < validation.MinTokenAgeSec:
		err = fmt.Errorf("--service-account-signing-endpoint %s: its tokens live for at most %s, but must live for at least %d seconds", o.SigningEndpoint, longest, validation.MinTokenAgeSec)
	case flags.MaxExpiration > longest:
		err = fmt.Errorf("--service-account-max-token-expiration %s must not be longer than the %s that --service-account-signing-endpoint allows", flags.MaxExpiration, longest)
	}
	if err != nil {
		cancel()
		return nil, err
	}
	maxExpiration := flags.MaxExpiration
	if maxExpiration == 0 {
		maxExpiration = longest
	}
	return &ServiceAccounts{
		Issuer: flags.Issuers[0], Generator: signer, PublicKeys: keys, MaxExpiration: maxExpiration, ExtendExpiration: flags.ExtendExpiration,
		MaxExtendedExpiration: min(longest, flags.MaxExtendedExpiration), jwksURI: flags.JWKSURI,
	}, nil
}
