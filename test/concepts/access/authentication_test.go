package access

import (
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"slices"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// authenticators is what a server with every authentication method enabled trusts. The promises about each method are in their
// own file.
type authenticators struct {
	clients  *kit.Authority  // of client certificates
	proxies  *kit.Authority  // of front proxies
	accounts *rsa.PrivateKey // signs the tokens of service accounts
	retired  *rsa.PrivateKey // signed them before
	issuer   *issuer
	webhook  *tokenWebhook
}

// Section "Authentication": how the server identifies a client.
func TestAuthentication(t *testing.T) {
	a := &authenticators{clients: kit.NewAuthority(t, "clients"), proxies: kit.NewAuthority(t, "proxies"), issuer: newIssuer(t), webhook: newTokenWebhook(t)}
	var signing, retired string
	a.accounts, signing = newKey(t)
	a.retired, retired = newKey(t)
	kit.Prove(t, []string{
		"--client-ca-file=" + a.clients.File,
		"--requestheader-client-ca-file=" + a.proxies.File,
		"--requestheader-uid-headers=X-Remote-Uid",
		"--token-auth-file=" + kit.WriteFile(t, "tokens.csv", staticTokens),
		"--enable-bootstrap-token-auth",
		"--service-account-signing-key-file=" + signing,
		"--service-account-key-file=" + retired,
		"--service-account-issuer=" + firstIssuer,
		"--service-account-issuer=" + secondIssuer,
		"--oidc-issuer-url=" + a.issuer.URL,
		"--oidc-client-id=sqube",
		"--oidc-ca-file=" + kit.WriteFile(t, "issuer.crt", string(a.issuer.authority())),
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

func (a *authenticators) general() []kit.Promise {
	return []kit.Promise{
		{Statement: "a request without credentials is the user system:anonymous in the group system:unauthenticated", Proof: func(t *testing.T, c *kit.Cluster) {
			c.BindEverywhere(t, "ClusterRole/system:basic-user", "User/system:anonymous")
			anonymous := c.Anonymous(t)
			harness.Eventually(t, "anonymous users may create SelfSubjectReviews", func() bool {
				return anonymous.Post(t, kit.SelfReviews, kit.SelfSubjectReview).Want(t, http.StatusCreated, http.StatusForbidden).Code == http.StatusCreated
			})
			anonymous.Is(t, "system:anonymous", unauthenticated)
		}},
		{Statement: "anonymous users see health and version, and get 403 for the rest", Proof: func(t *testing.T, c *kit.Cluster) {
			anonymous := c.Anonymous(t)
			for _, path := range []string{"/healthz", "/livez", "/readyz", "/version", "/version/"} {
				anonymous.Get(t, path).OK(t)
			}
			for _, path := range []string{"/api", "/apis", "/openapi/v3", "/metrics", "/logs"} {
				anonymous.Get(t, path).Forbidden(t, `forbidden: User "system:anonymous" cannot get path "`+path+`"`)
			}
			anonymous.Get(t, c.Path("v1", "configmaps")).Forbidden(t,
				`configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" in API group "" in the namespace "`+c.Namespace+`"`)
		}},
		{Statement: "wrong credentials get 401, even if none are needed", Proof: func(t *testing.T, c *kit.Cluster) {
			answer := c.Bearer(t, "wrong").Get(t, "/version").Refused(t, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
			kit.Equal(t, answer.Header.Get("Content-Type"), "application/json")
			if asks, ok := answer.Header["Www-Authenticate"]; ok { // like kube-apiserver: there is no scheme to request
				t.Errorf("the response requests %q", asks)
			}
			c.Bearer(t, "wrong").Send(t, http.MethodGet, c.Path("v1", "pods"), kit.Header{"Accept", "application/yaml"}, nil).Refused(t, http.StatusUnauthorized, "Unauthorized")
		}},
		{Statement: "credentials of an unknown kind are ignored", Proof: func(t *testing.T, c *kit.Cluster) {
			for _, authorization := range []string{"Basic amFuZTpzM2NyZXQ=", "Negotiate x", "Bearer", "Bearer "} {
				c.Anonymous(t).Send(t, http.MethodGet, "/api", kit.Header{"Authorization", authorization}, nil).Forbidden(t, "system:anonymous")
			}
		}},
		{Statement: "a token is ignored if a certificate is accepted, and used otherwise", Proof: func(t *testing.T, c *kit.Cluster) {
			both := func(certificate kit.KeyPair) *kit.Client {
				return c.ClientWith(t, func(config *rest.Config) {
					config.CertData, config.KeyData, config.BearerToken = certificate.Certificate, certificate.Key, "static-jane"
				})
			}
			jane := pkix.Name{CommonName: "certified"}
			both(a.clients.Issue(t, x509.Certificate{Subject: jane})).Is(t, "certified", authenticated)
			both(kit.NewAuthority(t, "strange").Issue(t, x509.Certificate{Subject: jane})).Is(t, "jane", "dev", "ops", authenticated)
		}},
	}
}
