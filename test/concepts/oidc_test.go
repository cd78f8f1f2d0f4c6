package concepts

import (
	"crypto/rand"
	"crypto/rsa"
	"maps"
	"testing"
	"time"
)

// openIDConnect are the promises on ID tokens of the issuer that the flags --oidc-* name.
func (a *authenticators) openIDConnect() []promise {
	token := func(t *testing.T, further claims) string {
		all := claims{"sub": "ann", "tier": "gold"}
		maps.Copy(all, further)
		return a.issuer.token(t, all)
	}
	// The server reads the issuer's documents in the background.
	ready := func(t *testing.T, c *cluster) {
		first := c.bearer(t, token(t, nil))
		eventually(t, "the server knows the issuer", func() bool { return first.known(t) })
	}
	return []promise{
		{"an ID token names the user and the groups in claims, with the prefixes of the flags", func(t *testing.T, c *cluster) {
			ready(t, c)
			c.bearer(t, token(t, nil)).is(t, "oidc:ann", authenticated)
			c.bearer(t, token(t, claims{"teams": []string{"dev", "ops"}})).is(t, "oidc:ann", "oidc-dev", "oidc-ops", authenticated)
			c.bearer(t, token(t, claims{"teams": "dev"})).is(t, "oidc:ann", "oidc-dev", authenticated)
			c.bearer(t, token(t, claims{"aud": []string{"other", "sqube"}})).is(t, "oidc:ann", authenticated)
		}},
		{"an ID token is refused that is expired, not yet valid, for another client, of another issuer, or lacks a claim", func(t *testing.T, c *cluster) {
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
				if c.bearer(t, token(t, wrong)).known(t) {
					t.Errorf("a token with %v is accepted", wrong)
				}
			}
		}},
		{"an ID token with a signature that is not the issuer's is refused", func(t *testing.T, c *cluster) {
			ready(t, c)
			stranger, err := rsa.GenerateKey(rand.Reader, 2048)
			if err != nil {
				t.Fatal(err)
			}
			good := claims{"iss": a.issuer.URL, "aud": "sqube", "exp": time.Now().Add(time.Hour).Unix(), "sub": "ann", "tier": "gold"}
			c.bearer(t, signToken(t, a.issuer.key, good)).is(t, "oidc:ann", authenticated)
			c.bearer(t, signToken(t, stranger, good)).isNobody(t)
		}},
	}
}
