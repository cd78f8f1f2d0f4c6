package kit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/sqube/sqube/test/harness"
)

// ClientWith returns a client with the credentials that set adds to a configuration without any.
func (c *Cluster) ClientWith(t testing.TB, set func(*rest.Config)) *Client {
	t.Helper()
	config := rest.AnonymousClientConfig(c.Config)
	set(config)
	return NewClient(t, config)
}

// Anonymous returns a client without credentials.
func (c *Cluster) Anonymous(t testing.TB) *Client {
	t.Helper()
	return c.ClientWith(t, func(*rest.Config) {})
}

// Bearer returns a client with a bearer token.
func (c *Cluster) Bearer(t testing.TB, token string) *Client {
	t.Helper()
	return c.ClientWith(t, func(config *rest.Config) { config.BearerToken = token })
}

// Certified returns a client with a client certificate.
func (c *Cluster) Certified(t testing.TB, p KeyPair) *Client {
	t.Helper()
	return c.ClientWith(t, func(config *rest.Config) { config.CertData, config.KeyData = p.Certificate, p.Key })
}

// As returns a client of the administrator that impersonates another user.
func (c *Cluster) As(t testing.TB, user string, groups ...string) *Client {
	t.Helper()
	return c.Impersonating(t, rest.ImpersonationConfig{UserName: user, Groups: groups})
}

// WhoAmI returns the client's identity on the server.
func (c *Client) WhoAmI(t testing.TB) authenticationv1.UserInfo {
	t.Helper()
	return SelfReview(t, c.Post(t, SelfReviews, SelfSubjectReview).Created(t))
}

// SelfReviews is the path for reviews of a client's own identity, by sending SelfSubjectReview.
const SelfReviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// SelfSubjectReview is the request.
var SelfSubjectReview = map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

// SelfReview returns the user in the response.
func SelfReview(t testing.TB, a Answer) authenticationv1.UserInfo {
	t.Helper()
	var review authenticationv1.SelfSubjectReview
	harness.Must(t, json.Unmarshal(a.Body, &review))
	return review.Status.UserInfo
}

// Is fails the test unless the server identifies the client as this user in these groups.
func (c *Client) Is(t testing.TB, name string, groups ...string) authenticationv1.UserInfo {
	t.Helper()
	user := c.WhoAmI(t)
	slices.Sort(user.Groups)
	slices.Sort(groups)
	if user.Username != name || !slices.Equal(user.Groups, groups) {
		t.Fatalf("the server identifies the client as %q in %q instead of %q in %q", user.Username, user.Groups, name, groups)
	}
	return user
}

// IsUnauthenticated fails the test unless the server rejects the client's credentials.
func (c *Client) IsUnauthenticated(t testing.TB) {
	t.Helper()
	c.Post(t, SelfReviews, SelfSubjectReview).Refused(t, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
}

// IsAuthenticated reports whether the server accepts the client's credentials.
func (c *Client) IsAuthenticated(t testing.TB) bool {
	t.Helper()
	return c.Post(t, SelfReviews, SelfSubjectReview).Want(t, http.StatusCreated, http.StatusUnauthorized).Code == http.StatusCreated
}

// KeyPair is a certificate and its key, in PEM.
type KeyPair struct{ Certificate, Key []byte }

// ForTLS returns the certificate as a server or a client presents it.
func (p KeyPair) ForTLS(t testing.TB) []tls.Certificate {
	t.Helper()
	return []tls.Certificate{Must(tls.X509KeyPair(p.Certificate, p.Key))(t)}
}

// ServingCertificate returns a server's certificate for the name and for 127.0.0.1, followed by its authority's: it is also what
// clients need to trust the server.
func ServingCertificate(t testing.TB, name string) KeyPair {
	t.Helper()
	authority := NewAuthority(t, name)
	pair := authority.Issue(t, x509.Certificate{
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	pair.Certificate = append(pair.Certificate, EncodeCertificate(authority.Certificate.Raw)...)
	return pair
}

// Authority issues certificates, like an operator's own authority.
type Authority struct {
	File        string // its certificate, in PEM
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
}

// NewAuthority returns an authority with its own certificate.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	key := Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	certificate := Must(cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key))(t)
	return &Authority{File: WriteFile(t, "ca.crt", string(EncodeCertificate(certificate.Raw))), Certificate: certificate, Key: key}
}

// Issue issues a certificate according to the template. By default, it is a client certificate that is valid now.
func (a *Authority) Issue(t testing.TB, template x509.Certificate) KeyPair {
	t.Helper()
	key := Must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	text := Must(keyutil.MarshalPrivateKeyToPEM(key))(t)
	return KeyPair{a.Sign(t, template, &key.PublicKey), text}
}

// Sign is Issue for another party's key.
func (a *Authority) Sign(t testing.TB, template x509.Certificate, key any) []byte {
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
	der := Must(x509.CreateCertificate(rand.Reader, &template, a.Certificate, key, a.Key))(t)
	return EncodeCertificate(der)
}

// EncodeCertificate returns a certificate in PEM.
func EncodeCertificate(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}

// Impersonating returns a client with all kinds of impersonation headers.
func (c *Cluster) Impersonating(t testing.TB, who rest.ImpersonationConfig) *Client {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	config.Impersonate = who
	return NewClient(t, config)
}

// MakeServiceAccount creates a ServiceAccount in the promise's namespace.
func (c *Cluster) MakeServiceAccount(t testing.TB, name string) *corev1.ServiceAccount {
	t.Helper()
	account := Must(c.Kube.CoreV1().ServiceAccounts(c.Namespace).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	return account
}
