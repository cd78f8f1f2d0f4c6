package serve

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// TestFormerKubeletClient starts on a data directory of former versions: with a client certificate for kubelets that is in
// system:masters. It is replaced.
func TestFormerKubeletClient(t *testing.T) {
	t.Parallel()
	dataDir := left(t, leftStopped)
	load := func(name string) tls.Certificate {
		t.Helper()
		base := filepath.Join(dataDir, "pki", name)
		pair, err := tls.LoadX509KeyPair(base+".crt", base+".key")
		harness.Must(t, err)
		return pair
	}
	const name = "apiserver-kubelet-client"
	ca, client := load("ca"), load(name)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(7),
		Subject:      pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca.Leaf, client.PrivateKey.(crypto.Signer).Public(), ca.PrivateKey)
	harness.Must(t, err)
	former := filepath.Join(dataDir, "pki", name+".crt")
	harness.Must(t, os.WriteFile(former, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))

	again := serveIn(t, dataDir, nil)
	if subject := load(name).Leaf.Subject; subject.CommonName != "kube-apiserver-kubelet-client" || len(subject.Organization) > 0 {
		t.Errorf("kubelets see %s", subject)
	}
	again.Stop(t)

	// If the CA's key is kept elsewhere, the error tells the operator what to issue.
	harness.Must(t, os.WriteFile(former, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	harness.Must(t, os.Remove(filepath.Join(dataDir, "pki", "ca.key")))
	refuses(t, "a certificate for kube-apiserver-kubelet-client, in no group, must be issued, but the authority's key is missing",
		[]string{"serve", "--data-dir", dataDir, "--bind-address", "127.0.0.1", "--secure-port", freePort(t)})
}
