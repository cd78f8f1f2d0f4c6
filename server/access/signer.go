package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/kubernetes/pkg/apis/authentication/validation"
	"k8s.io/kubernetes/pkg/serviceaccount/externaljwt/plugin"
)

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
	detach := context.AfterFunc(ctx, cancel)
	signer, keys, err := plugin.New(asking, flags.Issuers[0], o.SigningEndpoint, signerTimeout, false)
	if err != nil || !detach() {
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
