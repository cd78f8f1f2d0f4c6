package imports

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/sqube/sqube/test/harness"
)

// authority is a certificate authority of the old cluster.
type authority struct {
	certificate *x509.Certificate
	key         *rsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newKey(t)}
	var err error
	if a.certificate, err = cert.NewSelfSignedCACert(cert.Config{CommonName: "kubernetes"}, a.key); err != nil {
		t.Fatal(err)
	}
	return a
}

func newKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	harness.Must(t, err)
	return key
}

// pem is the certificate.
func (a *authority) pem() []byte { return encode(a.certificate.Raw) }

// write writes certificate and key in kubeadm's format.
func (a *authority) write(t *testing.T, certificate, key string) {
	t.Helper()
	for path, data := range map[string][]byte{certificate: a.pem(), key: keyPEM(t, a.key)} {
		harness.Must(t, os.WriteFile(path, data, 0o600))
	}
}

// client returns the configuration of a user with a certificate of this authority who trusts servers.
func (a *authority) client(t *testing.T, url string, servers *authority, user string) *rest.Config {
	t.Helper()
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: user},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.certificate, key.Public(), a.key)
	harness.Must(t, err)
	return &rest.Config{Host: url, TLSClientConfig: rest.TLSClientConfig{CAData: servers.pem(), CertData: encode(der), KeyData: keyPEM(t, key)}}
}

func encode(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}

func keyPEM(t *testing.T, key *rsa.PrivateKey) []byte {
	t.Helper()
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	harness.Must(t, err)
	return data
}

// user returns the client's identity on the server.
func user(t *testing.T, config *rest.Config) string {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Error(err)
		return ""
	}
	return review.Status.UserInfo.Username
}
