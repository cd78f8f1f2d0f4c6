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
		// kube-apiserver accepts such a token only once what it remembers has expired.
		{Statement: "an ID token with a new key is accepted though the former keys may be remembered for a week, and tokens of strangers don't make the server ask for keys each time", Proof: func(t *testing.T, c *kit.Cluster) {
			good := claims{"sub": "ann", "tier": "gold"}
			for range 2 { // the first time, the server may not remember any keys
				rotated := c.Bearer(t, a.issuer.rotated(t).token(t, good))
				harness.Eventually(t, "the token with a new key is accepted", func() bool { return rotated.IsAuthenticated(t) })
				rotated.Is(t, "oidc:ann", authenticated)
			}
			before := a.issuer.asked.Load()
			const tokens = 50
			stranger := &issuer{Server: a.issuer.Server, key: kit.Must(rsa.GenerateKey(rand.Reader, 2048))(t)}
			for range tokens {
				c.Bearer(t, stranger.token(t, good)).IsUnauthenticated(t)
			}
			if asked := a.issuer.asked.Load() - before; asked > tokens/5 {
				t.Errorf("for %d tokens of a stranger, the issuer was asked for its keys %d times", tokens, asked)
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
