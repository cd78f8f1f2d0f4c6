package console

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync"
	"time"
)

const clientID, clientSecret = "the-console", "s3cret"

// identityProvider is an issuer of OpenID Connect at which ann is signed in. It accepts the console, whatever its address.
type identityProvider struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu    sync.Mutex
	asked map[string]url.Values // by code, what the console asked for
	wrong string                // what goes wrong
}

var provider *identityProvider

func newIdentityProvider() (*identityProvider, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	p := &identityProvider{key: key, asked: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{
			"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
			"id_token_signing_alg_values_supported": []string{"RS256"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "use": "sig", "alg": "RS256", "n": encode(key.N.Bytes()), "e": encode(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	mux.HandleFunc("/authorize", p.authorize)
	mux.HandleFunc("/token", p.token)
	p.Server = httptest.NewTLSServer(mux)
	return p, nil
}

// write writes the provider's certificate to a file.
func (p *identityProvider) write(path string) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.Certificate().Raw}), 0o600)
}

// goesWrong sets what goes wrong, "" for nothing.
func (p *identityProvider) goesWrong(wrong string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wrong = wrong
}

func (p *identityProvider) authorize(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked, code := r.URL.Query(), rand.Text()
	p.asked[code] = asked
	answer := url.Values{"state": {asked.Get("state")}, "code": {code}}
	if p.wrong == "denied" {
		answer = url.Values{"state": {asked.Get("state")}, "error": {"access_denied"}, "error_description": {"ann is <b>not</b> invited"}}
	}
	http.Redirect(w, r, asked.Get("redirect_uri")+"?"+answer.Encode(), http.StatusFound)
}

func (p *identityProvider) token(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	code, verifier := r.FormValue("code"), sha256.Sum256([]byte(r.FormValue("code_verifier")))
	asked := p.asked[code]
	delete(p.asked, code)
	id, secret, _ := r.BasicAuth()
	switch {
	case p.wrong == "down":
		panic(http.ErrAbortHandler)
	case id != clientID || secret != clientSecret || p.wrong == "client":
		writeJSON(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client", "error_description": "the secret is wrong"})
		return
	case asked == nil || asked.Get("code_challenge_method") != "S256" || asked.Get("code_challenge") != encode(verifier[:]) || asked.Get("redirect_uri") != r.FormValue("redirect_uri"):
		writeJSON(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{"iss": p.URL, "aud": clientID, "sub": "ann", "nonce": asked.Get("nonce"), "exp": time.Now().Add(time.Hour).Unix()}
	switch p.wrong {
	case "nonce":
		claims["nonce"] = "another"
	case "clock":
		claims["exp"] = time.Now().Add(-time.Hour).Unix()
	}
	writeJSON(w, http.StatusOK, map[string]any{"access_token": "-", "token_type": "Bearer", "id_token": p.sign(claims)})
}

func (p *identityProvider) sign(claims map[string]any) string {
	payload, _ := json.Marshal(claims)
	text := encode([]byte(`{"alg":"RS256"}`)) + "." + encode(payload)
	hash := sha256.Sum256([]byte(text))
	signature, _ := rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, hash[:])
	return text + "." + encode(signature)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func writeJSON(w http.ResponseWriter, status int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(content)
}
