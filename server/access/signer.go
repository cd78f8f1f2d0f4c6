package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
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

const (
	// cacheTTL is how long a verified client certificate is cached, the same as upstream caches a verified token.
	cacheTTL = 10 * time.Second
	// cacheSize is how many certificates are cached.
	cacheSize = 4096
)

// certificates caches the users of verified client certificates. Verifying the signature for every request is a large part of
// the cost of a small request.
//
// It applies only to requests with just a certificate: with a token, or with the headers of a front proxy, the same certificate may
// stand for another user.
type certificates struct {
	next    authenticator.Request
	headers func() []string // those in which a front proxy names a user
	known   *utilcache.LRUExpireCache
}

func newCertificates(next authenticator.Request, headers func() []string) *certificates {
	return &certificates{next, headers, utilcache.NewLRUExpireCache(cacheSize)}
}

func (c *certificates) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if !c.onlyCertificate(r) {
		return c.next.AuthenticateRequest(r)
	}
	leaf := r.TLS.PeerCertificates[0]
	key := sha256.Sum256(leaf.Raw)
	if known, ok := c.known.Get(key); ok {
		response := *known.(*authenticator.Response)
		return &response, true, nil
	}
	response, ok, err := c.next.AuthenticateRequest(r)
	if err == nil && ok {
		if left := time.Until(leaf.NotAfter); left > 0 {
			kept := *response
			c.known.Add(key, &kept, min(left, cacheTTL))
		}
	}
	return response, ok, err
}

func (c *certificates) onlyCertificate(r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || r.Header.Get("Authorization") != "" || r.Header.Get("Sec-WebSocket-Protocol") != "" {
		return false
	}
	for _, name := range c.headers() {
		if r.Header.Get(name) != "" {
			return false
		}
	}
	return true
}
