package access

import (
	"crypto/sha256"
	"net/http"
	"time"

	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

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
