package access

import (
	"crypto/rand"
	"crypto/rsa"
	"maps"
	"testing"
	"time"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// openIDConnect are the promises about ID tokens of the issuer in the flags --oidc-*.
func (a *authenticators) openIDConnect() []kit.Promise {
	token := func(t *testing.T, further claims) string {
		all := claims{"sub": "ann", "tier": "gold"}
		maps.Copy(all, further)
		return a.issuer.token(t, all)
	}
	// The server reads the issuer's documents in the background.
	ready := func(t *testing.T, c *kit.Cluster) {
		first := c.Bearer(t, token(t, nil))
		harness.Eventually(t, "the server accepts the issuer", func() bool { return first.IsAuthenticated(t) })
	}
	return []kit.Promise{
		{Statement: "an ID token names the user and the groups in claims, with the prefixes of the flags", Proof: func(t *testing.T, c *kit.Cluster) {
			ready(t, c)
			c.Bearer(t, token(t, nil)).Is(t, "oidc:ann", authenticated)
			c.Bearer(t, token(t, claims{"teams": []string{"dev", "ops"}})).Is(t, "oidc:ann", "oidc-dev", "oidc-ops", authenticated)
			c.Bearer(t, token(t, claims{"teams": "dev"})).Is(t, "oidc:ann", "oidc-dev", authenticated)
			c.Bearer(t, token(t, claims{"aud": []string{"other", "sqube"}})).Is(t, "oidc:ann", authenticated)
		}},
		{Statement: "an ID token that is expired, not yet valid, for another client, of another issuer, or lacks a claim is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
			ready(t, c)
			for _, wrong := range []claims{
				{"exp": time.Now().Add(-time.Minute).Unix()},
				{"nbf": time.Now().Add(time.Hour).Unix()},
				{"aud": "other"},
				{"iss": "https://other.example.com"},
				{"sub": nil},
				{"tier": nil},
				{"tier": "silver"},
			} {
				if c.Bearer(t, token(t, wrong)).IsAuthenticated(t) {
					t.Errorf("a token with %v is accepted", wrong)
				}
			}
		}},
		{Statement: "an ID token not signed by the issuer is rejected", Proof: func(t *testing.T, c *kit.Cluster) {
			ready(t, c)
			stranger := kit.Must(rsa.GenerateKey(rand.Reader, 2048))(t)
			good := claims{"iss": a.issuer.URL, "aud": "sqube", "exp": time.Now().Add(time.Hour).Unix(), "sub": "ann", "tier": "gold"}
			c.Bearer(t, signToken(t, a.issuer.key, good)).Is(t, "oidc:ann", authenticated)
			c.Bearer(t, signToken(t, stranger, good)).IsUnauthenticated(t)
		}},
	}
}
