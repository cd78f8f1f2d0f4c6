package serve

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/sqube/sqube/test/harness"
)

// TestCredentials passes static tokens, the keys of service accounts in every format that kube-apiserver reads, and the signing key as
// openssl genpkey and envtest write it.
func TestCredentials(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, blocks ...*pem.Block) string {
		t.Helper()
		var text []byte
		for _, block := range blocks {
			text = append(text, pem.EncodeToMemory(block)...)
		}
		path := filepath.Join(dir, name)
		harness.Must(t, os.WriteFile(path, text, 0o600))
		return path
	}
	block := func(kind string, der []byte, err error) *pem.Block {
		t.Helper()
		harness.Must(t, err)
		return &pem.Block{Type: kind, Bytes: der}
	}
	newRSA := func() *rsa.PrivateKey {
		t.Helper()
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		harness.Must(t, err)
		return key
	}
	newEC := func() *ecdsa.PrivateKey {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
		harness.Must(t, err)
		return key
	}
	pkcs8 := func(key crypto.Signer) *pem.Block {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		return block("PRIVATE KEY", der, err)
	}
	public := func(key crypto.Signer) *pem.Block {
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		return block("PUBLIC KEY", der, err)
	}
	certificate := func(key crypto.Signer) *pem.Block {
		made, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "accounts"}, key)
		harness.Must(t, err)
		return block("CERTIFICATE", made.Raw, nil)
	}
	sec1, err := x509.MarshalECPrivateKey(newEC())
	parameters := &pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 5, 0x2b, 0x81, 4, 0, 0x22}}
	private := write("private.pem", parameters, block("EC PRIVATE KEY", sec1, err), pkcs8(newEC()),
		block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(newRSA()), nil), pkcs8(newRSA()))
	others := write("public.pem", public(newEC()), certificate(newEC()), public(newRSA()), certificate(newRSA()))
	signer := newEC()
	signing := write("sa.key", pkcs8(signer))

	static := filepath.Join(dir, "tokens.csv")
	harness.Must(t, os.WriteFile(static, []byte(tokens), 0o600))
	s := serve(t, []string{"--token-auth-file", static, "--service-account-signing-key-file=" + signing, "--service-account-key-file=" + private,
		"--service-account-key-file=" + others, "--service-account-key-file=" + write("sa.pub", public(signer))})
	c := client(t, s.Kubeconfig)
	text, err := c.Discovery().RESTClient().Get().AbsPath("/openid/v1/jwks").DoRaw(t.Context())
	harness.Must(t, err)
	var published struct{ Keys []any }
	harness.Must(t, json.Unmarshal(text, &published))
	if len(published.Keys) != 9 { // that of the signer once
		t.Errorf("%d keys are published: %s", len(published.Keys), text)
	}

	whoMayDoWhat(t, s)
	accounts := c.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	issued, err := accounts.CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	harness.Must(t, err)
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: issued.Status.Token}}
	review, err = c.AuthenticationV1().TokenReviews().Create(t.Context(), review, metav1.CreateOptions{})
	if err != nil || review.Status.User.Username != "system:serviceaccount:default:robot" {
		t.Errorf("the token belongs to %+v, %v", review.Status, err)
	}
}
