package concepts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net/http"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// with returns a client of the credentials that set puts into a configuration without any.
func (c *cluster) with(t testing.TB, set func(*rest.Config)) *client {
	t.Helper()
	config := rest.AnonymousClientConfig(c.config)
	set(config)
	return newClient(t, config)
}

// anonymous returns a client without credentials.
func (c *cluster) anonymous(t testing.TB) *client {
	t.Helper()
	return c.with(t, func(*rest.Config) {})
}

// bearer returns a client of a bearer token.
func (c *cluster) bearer(t testing.TB, token string) *client {
	t.Helper()
	return c.with(t, func(config *rest.Config) { config.BearerToken = token })
}

// certified returns a client of a client certificate.
func (c *cluster) certified(t testing.TB, p keyPair) *client {
	t.Helper()
	return c.with(t, func(config *rest.Config) { config.CertData, config.KeyData = p.certificate, p.key })
}

// as returns a client of the administrator that acts as somebody else.
func (c *cluster) as(t testing.TB, user string, groups ...string) *client {
	t.Helper()
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return newClient(t, config)
}

// whoami asks the server who the client is.
func (c *client) whoami(t testing.TB) authenticationv1.UserInfo {
	t.Helper()
	return selfReview(t, c.post(t, selfReviews, selfSubjectReview).want(t, http.StatusCreated))
}

const selfReviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

var selfSubjectReview = map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

func selfReview(t testing.TB, a answer) authenticationv1.UserInfo {
	t.Helper()
	var review authenticationv1.SelfSubjectReview
	if err := json.Unmarshal(a.Body, &review); err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo
}

// is fails the test unless the server takes the client for this user in these groups.
func (c *client) is(t testing.TB, name string, groups ...string) authenticationv1.UserInfo {
	t.Helper()
	user := c.whoami(t)
	slices.Sort(user.Groups)
	slices.Sort(groups)
	if user.Username != name || !slices.Equal(user.Groups, groups) {
		t.Fatalf("the server takes the client for %q in %q instead of %q in %q", user.Username, user.Groups, name, groups)
	}
	return user
}

// isNobody fails the test unless the server refuses the client's credentials.
func (c *client) isNobody(t testing.TB) {
	t.Helper()
	c.post(t, selfReviews, selfSubjectReview).refused(t, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
}

// known tells whether the server accepts the client's credentials.
func (c *client) known(t testing.TB) bool {
	t.Helper()
	return c.post(t, selfReviews, selfSubjectReview).want(t, http.StatusCreated, http.StatusUnauthorized).Code == http.StatusCreated
}

// keyPair is a certificate and its key, in PEM.
type keyPair struct{ certificate, key []byte }

// authority issues certificates as an operator's own does.
type authority struct {
	file        string // its certificate, in PEM
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{file: writeFile(t, "ca.crt", string(encodeCertificate(certificate.Raw))), certificate: certificate, key: key}
}

// issue issues a certificate as the template says. What it does not say makes a client certificate that is valid now.
func (a *authority) issue(t testing.TB, template x509.Certificate) keyPair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	return keyPair{a.sign(t, template, &key.PublicKey), text}
}

// sign is issue for a key that somebody else has.
func (a *authority) sign(t testing.TB, template x509.Certificate, key any) []byte {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotBefore.IsZero() {
		template.NotBefore = time.Now().Add(-time.Hour)
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(time.Hour)
	}
	if template.ExtKeyUsage == nil {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, a.certificate, key, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return encodeCertificate(der)
}

func encodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}
