package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// credentials are the files that the servers of one run and their clients need. Every server gets the same kinds, an ECDSA
// certificate and a static token, so that only the servers differ.
type credentials struct {
	Certificate, Key string // PEM files
	TokenFile        string // for --token-auth-file; the token's user is in system:masters
	EncryptionKey    string // for --pki-encryption-key-file
	token            string
	nodes            int // how many have a token
}

// newCredentials writes the files into dir, with a token for each of the nodes.
func newCredentials(dir string, nodes int) (credentials, error) {
	c := credentials{
		Certificate: filepath.Join(dir, "tls.crt"),
		Key:         filepath.Join(dir, "tls.key"),
		TokenFile:   filepath.Join(dir, "tokens.csv"),

		EncryptionKey: filepath.Join(dir, "encryption.key"),
		nodes:         nodes,
	}
	secret := make([]byte, 16)
	rand.Read(secret) // never fails: it crashes the process instead
	encryption := make([]byte, 32)
	rand.Read(encryption)
	c.token = hex.EncodeToString(secret)
	tokens := c.token + ",bench,bench,system:masters\n"
	for i := range nodes {
		tokens += fmt.Sprintf("%s,system:node:%s,%s,system:nodes\n", c.nodeToken(i), nodeName(i), nodeName(i))
	}
	certificate, key, err := selfSigned()
	if err != nil {
		return c, err
	}
	for path, content := range map[string][]byte{
		c.Certificate: certificate,
		c.Key:         key,
		c.TokenFile:   []byte(tokens),

		c.EncryptionKey: []byte(base64.StdEncoding.EncodeToString(encryption) + "\n"),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return c, err
		}
	}
	return c, nil
}

// nodeToken returns the token of a node.
func (c credentials) nodeToken(i int) string { return c.token + "-" + nodeName(i) }

// kubeconfig writes a kubeconfig for the server at the port with the token, and returns its path. The certificate authority is
// ca, in PEM.
func (c credentials) kubeconfig(dir string, port int, ca []byte) (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["bench"] = &clientcmdapi.Cluster{Server: address(port), CertificateAuthorityData: ca}
	config.AuthInfos["bench"] = &clientcmdapi.AuthInfo{Token: c.token}
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	config.CurrentContext = "bench"
	path := filepath.Join(dir, "kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
}

func loadKubeconfig(path string) (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", path)
}

// selfSigned returns a self-signed certificate for 127.0.0.1, and its key, in PEM.
func selfSigned() (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "bench"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}), nil
}
