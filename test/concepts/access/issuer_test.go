package access

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqube/sqube/test/concepts/kit"
)

// issuer is a provider of OpenID Connect identities: it publishes its keys, and issues ID tokens.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey
	// published are the keys that it publishes, for others to keep as long as they want; nil for the key alone, which nobody may keep.
	published atomic.Pointer[[]*rsa.PrivateKey]
	asked     atomic.Int64 // how often its keys were read
}

// rotated publishes another key besides its own, and returns the issuer that signs with it.
func (i *issuer) rotated(t testing.TB) *issuer {
	t.Helper()
	key := kit.Must(rsa.GenerateKey(rand.Reader, 2048))(t)
	i.published.Store(&[]*rsa.PrivateKey{i.key, key})
	return &issuer{Server: i.Server, key: key}
}

// newIssuer starts an issuer that is stopped when the test ends.
func newIssuer(t testing.TB) *issuer {
	t.Helper()
	key := kit.Must(rsa.GenerateKey(rand.Reader, 2048))(t)
	i := &issuer{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize",
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
			"id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		i.asked.Add(1)
		keys := []*rsa.PrivateKey{key}
		if published := i.published.Load(); published != nil {
			keys = *published
			w.Header().Set("Cache-Control", "max-age=604800")
		}
		var all []any
		for _, key := range keys {
			all = append(all, map[string]any{
				"kty": "RSA", "use": "sig", "alg": "RS256", "kid": keyID(key),
				"n": base64.RawURLEncoding.EncodeToString(key.N.Bytes()),
				"e": base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes()),
			})
		}
		writeJSON(w, map[string]any{"keys": all})
	})
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

func writeJSON(w http.ResponseWriter, content any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(content) // fails only if the client has disconnected
}

// authority is the issuer's certificate in PEM, for clients to trust.
func (i *issuer) authority() []byte { return kit.EncodeCertificate(i.Certificate().Raw) }

// claims are the content of a token. A nil value removes a default claim.
type claims map[string]any

// token issues a token that is valid now, for the audience "sqube", with additional or changed claims.
func (i *issuer) token(t testing.TB, further claims) string {
	t.Helper()
	all := claims{"iss": i.URL, "aud": "sqube", "iat": time.Now().Add(-time.Minute).Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, further)
	maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
	return signTokenAs(t, i.key, `{"alg":"RS256","kid":"`+keyID(i.key)+`"}`, all)
}

// keyID names a key.
func keyID(key *rsa.PrivateKey) string {
	sum := sha256.Sum256(key.N.Bytes())
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// signToken returns a JSON Web Token (RFC 7519) signed with RS256.
func signToken(t testing.TB, key *rsa.PrivateKey, content claims) string {
	t.Helper()
	return signTokenAs(t, key, `{"alg":"RS256"}`, content)
}

func signTokenAs(t testing.TB, key *rsa.PrivateKey, header string, content claims) string {
	t.Helper()
	payload := kit.Must(json.Marshal(content))(t)
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(payload)
	hash := sha256.Sum256([]byte(text))
	signature := kit.Must(rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, hash[:]))(t)
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}
