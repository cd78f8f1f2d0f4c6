package access

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/kubernetes/pkg/serviceaccount"
)

// ServiceAccounts issues tokens of service accounts and publishes the keys that verify them.
type ServiceAccounts struct {
	// Issuer is named in every token.
	Issuer string
	// Key is the private key that signs tokens, of crypto/ecdsa or crypto/rsa; nil if another process signs them.
	Key any
	// Generator signs tokens.
	Generator serviceaccount.TokenGenerator
	// PublicKeys verify them; there may be more than the one that signs.
	PublicKeys serviceaccount.PublicKeysGetter
	// MaxExpiration is the longest lifetime that a token may be requested for; 0 means no limit.
	MaxExpiration time.Duration
	// ExtendExpiration extends the lifetime of pods' tokens to MaxExtendedExpiration.
	ExtendExpiration      bool
	MaxExtendedExpiration time.Duration

	jwksURI string
}

// NewServiceAccounts builds it from completed options. ctx limits how long this takes; an external signer is used until running
// ends. An error means that a key file has no usable key, or that the signer can't be used.
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
