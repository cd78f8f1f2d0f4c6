package concepts

import (
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"net/http"
	"slices"
	"testing"

	"k8s.io/client-go/rest"
)

// authenticators is what a server that knows all ways to log in trusts. The promises on each way are in a file of their own.
type authenticators struct {
	clients  *authority      // of client certificates
	proxies  *authority      // of front proxies
	accounts *rsa.PrivateKey // signs the tokens of service accounts
	retired  *rsa.PrivateKey // did so before
	issuer   *issuer
	webhook  *tokenWebhook
}

// Section "Authentication": who the server takes a client for.
func TestAuthentication(t *testing.T) {
	a := &authenticators{clients: newAuthority(t, "clients"), proxies: newAuthority(t, "proxies"), issuer: newIssuer(t), webhook: newTokenWebhook(t)}
	var signing, retired string
	a.accounts, signing = newKey(t)
	a.retired, retired = newKey(t)
	prove(t, []string{
		"--client-ca-file=" + a.clients.file,
		"--requestheader-client-ca-file=" + a.proxies.file,
		"--requestheader-uid-headers=X-Remote-Uid",
		"--token-auth-file=" + writeFile(t, "tokens.csv", staticTokens),
		"--enable-bootstrap-token-auth",
		"--service-account-signing-key-file=" + signing,
		"--service-account-key-file=" + retired,
		"--service-account-issuer=" + firstIssuer,
		"--service-account-issuer=" + secondIssuer,
		"--oidc-issuer-url=" + a.issuer.URL,
		"--oidc-client-id=sqube",
		"--oidc-ca-file=" + writeFile(t, "issuer.crt", string(a.issuer.authority())),
		"--oidc-username-prefix=oidc:",
		"--oidc-groups-claim=teams",
		"--oidc-groups-prefix=oidc-",
		"--oidc-required-claim=tier=gold",
		"--authentication-token-webhook-config-file=" + kubeconfigOf(t, a.webhook.Server),
		"--authentication-token-webhook-version=v1",
		"--authentication-token-webhook-cache-ttl=1h",
	}, slices.Concat(a.general(), a.certificates(), a.frontProxy(), staticTokenFile, a.bootstrapTokens(), a.openIDConnect(),
		a.tokenWebhook(), tokenRequests, a.accountTokens(), legacyTokens, a.tokenReviews())...)
}

// Groups that the server adds.
const (
	authenticated   = "system:authenticated"
	unauthenticated = "system:unauthenticated"
)

func (a *authenticators) general() []promise {
	return []promise{
		{"a request without credentials is the user system:anonymous in the group system:unauthenticated", func(t *testing.T, c *cluster) {
			c.bindCluster(t, "ClusterRole/system:basic-user", "User/system:anonymous")
			anonymous := c.anonymous(t)
			eventually(t, "anonymous may ask who it is", func() bool {
				return anonymous.post(t, selfReviews, selfSubjectReview).want(t, http.StatusCreated, http.StatusForbidden).Code == http.StatusCreated
			})
			anonymous.is(t, "system:anonymous", unauthenticated)
		}},
		{"anonymous users see health and version, and get 403 for the rest", func(t *testing.T, c *cluster) {
			anonymous := c.anonymous(t)
			for _, path := range []string{"/healthz", "/livez", "/readyz", "/version", "/version/"} {
				anonymous.get(t, path).want(t, http.StatusOK)
			}
			for _, path := range []string{"/api", "/apis", "/openapi/v3", "/metrics", "/logs"} {
				anonymous.get(t, path).refused(t, http.StatusForbidden, "Forbidden", `forbidden: User "system:anonymous" cannot get path "`+path+`"`)
			}
			anonymous.get(t, c.path("v1", "configmaps")).refused(t, http.StatusForbidden, "Forbidden",
				`configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" in API group "" in the namespace "`+c.namespace+`"`)
		}},
		{"wrong credentials are answered with 401, even where none are needed", func(t *testing.T, c *cluster) {
			answer := c.bearer(t, "wrong").get(t, "/version").refused(t, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
			if kind := answer.Header.Get("Content-Type"); kind != "application/json" {
				t.Errorf("the answer is %q", kind)
			}
			if asks, ok := answer.Header["Www-Authenticate"]; ok { // as kube-apiserver: there is no scheme to ask for
				t.Errorf("the answer asks for %q", asks)
			}
			c.bearer(t, "wrong").send(t, http.MethodGet, c.path("v1", "pods"), header{"Accept", "application/yaml"}, nil).refused(t, http.StatusUnauthorized, "Unauthorized")
		}},
		{"credentials of a kind that is not known are none", func(t *testing.T, c *cluster) {
			for _, authorization := range []string{"Basic amFuZTpzM2NyZXQ=", "Negotiate x", "Bearer", "Bearer "} {
				c.anonymous(t).send(t, http.MethodGet, "/api", header{"Authorization", authorization}, nil).
					refused(t, http.StatusForbidden, "Forbidden", "system:anonymous")
			}
		}},
		{"a token is not looked at where a certificate is accepted, and is where none is", func(t *testing.T, c *cluster) {
			both := func(certificate keyPair) *client {
				return c.with(t, func(config *rest.Config) {
					config.CertData, config.KeyData, config.BearerToken = certificate.certificate, certificate.key, "static-jane"
				})
			}
			jane := pkix.Name{CommonName: "certified"}
			both(a.clients.issue(t, x509.Certificate{Subject: jane})).is(t, "certified", authenticated)
			both(newAuthority(t, "strange").issue(t, x509.Certificate{Subject: jane})).is(t, "jane", "dev", "ops", authenticated)
		}},
		{"a WebSocket may bring its token as a subprotocol", func(t *testing.T, c *cluster) {
			plain := c.with(t, func(config *rest.Config) { config.NextProtos = []string{"http/1.1"} })
			c.allow(t, "jane", rule("watch", "configmaps"))
			watch := func(token string) int {
				response := plain.open(t, http.MethodGet, c.path("v1", "configmaps")+"?watch=true", header{
					"Connection", "Upgrade", "Upgrade", "websocket", "Origin", c.url, "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==",
					"Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token)) + ",base64.binary.k8s.io",
				}, nil)
				response.Body.Close()
				return response.StatusCode
			}
			if code := watch("static-jane"); code != http.StatusSwitchingProtocols {
				t.Errorf("with a token that is accepted: %d", code)
			}
			if code := watch("wrong"); code != http.StatusUnauthorized {
				t.Errorf("with a wrong one: %d", code)
			}
		}},
	}
}
