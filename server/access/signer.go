package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/kubernetes/pkg/serviceaccount/externaljwt/plugin"
)

const (
	// signerTimeout is how long to wait for an external signer at the start, and for each later read of its keys, like upstream.
	signerTimeout = time.Minute
	// metadataTimeout is how long to wait for the signer's metadata at the start, like upstream.
	metadataTimeout = 10 * time.Second
	// minTokenSeconds is the shortest lifetime that the API lets a client ask for.
	minTokenSeconds = 10 * 60
)

// newExternal lets another process sign tokens (KEP-740, --service-account-signing-endpoint). It is used until running ends; ctx
// limits the start. Like upstream, tokens live no longer than the signer allows.
func newExternal(ctx, running context.Context, o *Options) (_ *ServiceAccounts, err error) {
	flags := o.Authentication.ServiceAccounts
	asking, cancel := context.WithCancel(running)
	defer func() {
		if err != nil {
			cancel()
			err = fmt.Errorf("--service-account-signing-endpoint %s: %w", o.SigningEndpoint, err)
		}
	}()
	detach := context.AfterFunc(ctx, cancel)
	signer, keys, err := plugin.New(asking, flags.Issuers[0], o.SigningEndpoint, signerTimeout, false)
	if err != nil || !detach() {
		return nil, errors.Join(err, ctx.Err())
	}
	bounded, done := context.WithTimeout(ctx, metadataTimeout)
	defer done()
	metadata, err := signer.GetServiceMetadata(bounded)
	if err != nil {
		return nil, err
	}
	longest := time.Duration(metadata.MaxTokenExpirationSeconds) * time.Second
	switch {
	case metadata.MaxTokenExpirationSeconds < minTokenSeconds:
		return nil, fmt.Errorf("its tokens live for at most %s, but must live for at least %d seconds", longest, minTokenSeconds)
	case flags.MaxExpiration > longest:
		return nil, fmt.Errorf("--service-account-max-token-expiration %s must not be longer than the %s that it allows", flags.MaxExpiration, longest)
	}
	return &ServiceAccounts{
		Issuer: flags.Issuers[0], Generator: signer, PublicKeys: keys, MaxExpiration: cmp.Or(flags.MaxExpiration, longest), ExtendExpiration: flags.ExtendExpiration,
		MaxExtendedExpiration: min(longest, flags.MaxExtendedExpiration), jwksURI: flags.JWKSURI,
	}, nil
}
