package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	leafLifetime = 365 * 24 * time.Hour

	// extendBefore is how long before its expiry an authority is extended, so that it never expires before a certificate it issues.
	extendBefore = leafLifetime

	// clockSkew is how far another machine's clock may be behind.
	clockSkew = 5 * time.Minute
)

// Pair names the two files of a certificate and its private key, both PEM.
type Pair struct {
	CertFile, KeyFile string
}

type authority struct {
	pair Pair
	cert *x509.Certificate
	key  crypto.Signer // nil if it is stored elsewhere
}

// subject is the subject of a certificate, and its use.
type subject struct {
	name   string   // common name; of a client, its user name
	groups []string // organizations; of a client, its groups
	usage  x509.ExtKeyUsage
	dns    []string
	ips    []net.IP
}

// String is for errors.
func (s subject) String() string {
	switch {
	case s.usage != x509.ExtKeyUsageClientAuth:
		return s.name
	case len(s.groups) == 0:
		return s.name + ", in no group,"
	}
	return fmt.Sprintf("%s of %s", s.name, strings.Join(s.groups, ", "))
}

// openAuthority checks a certificate and key, which were read from pair's files.
func openAuthority(pair Pair, cert *x509.Certificate, key crypto.Signer, now time.Time) (*authority, error) {
	switch {
	case !cert.IsCA:
		return nil, &FileError{pair.CertFile, errors.New("it is not the certificate of a certificate authority"),
			"replace it with the authority's certificate"}
	case now.After(cert.NotAfter):
		return nil, &FileError{pair.CertFile, fmt.Errorf("the certificate authority expired on %s", cert.NotAfter.Format(time.DateOnly)),
			fmt.Sprintf("delete it and %s: sqube makes a new one, and all clients need new kubeconfigs", pair.KeyFile)}
	case now.Before(cert.NotBefore):
		return nil, &FileError{pair.CertFile, fmt.Errorf("it is valid only from %s", cert.NotBefore.Format(time.RFC3339)),
			"check this machine's clock"}
	case key != nil && !matches(cert, key):
		return nil, mismatch(pair)
	}
	return &authority{pair, cert, key}, nil
}

// issue returns a certificate for pub in PEM, valid from now for lifetime, but not longer than the authority.
func (a *authority) issue(s subject, pub crypto.PublicKey, now time.Time, lifetime time.Duration) ([]byte, error) {
	if a.key == nil {
		return nil, &FileError{a.pair.KeyFile, fmt.Errorf("a certificate for %s must be issued, but the authority's key is missing", s),
			"restore the key, or issue the certificate elsewhere and put it in the same folder"}
	}
	notAfter := now.Add(lifetime)
	if notAfter.After(a.cert.NotAfter) {
		notAfter = a.cert.NotAfter
	}
	cert, err := sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: s.name, Organization: s.groups},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              notAfter,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{s.usage},
		BasicConstraintsValid: true,
		DNSNames:              s.dns,
		IPAddresses:           s.ips,
	}, a.cert, pub, a.key)
	if err != nil {
		return nil, fmt.Errorf("issuing a certificate for %q: %w", s.name, err)
	}
	return cert, nil
}

// selfSign returns the certificate of an authority in PEM.
func selfSign(name string, key crypto.Signer, now time.Time) ([]byte, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	return sign(template, template, key.Public(), key)
}

// extend returns a's certificate in PEM, with a new expiry and the same key. Issued certificates stay valid, even for clients that
// have only the old certificate.
func (a *authority) extend(now time.Time) ([]byte, error) {
	template := *a.cert
	// NotBefore stays, in case this clock is ahead. Without a serial number, a new one is generated.
	template.SerialNumber, template.NotAfter = nil, now.Add(caLifetime)
	return sign(&template, &template, a.key.Public(), a.key)
}

func sign(template, parent *x509.Certificate, pub crypto.PublicKey, key crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), nil
}

// newKey generates a key, and returns it also in PEM.
func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	return key, data, err
}

// readKey returns the private key in path, or nil if there is no such file.
func readKey(path string) (crypto.Signer, error) {
	data, err := readPrivate(path)
	if err != nil {
		return nil, err
	}
	return parseKey(path, data)
}

// parseKey returns the private key in data, which was read from path, or nil if data is nil.
func parseKey(path string, data []byte) (crypto.Signer, error) {
	if data == nil {
		return nil, nil
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, &FileError{path, errors.New("it holds no private key in PEM"), hintRestore}
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, &FileError{path, fmt.Errorf("a key of type %T cannot sign", parsed), hintRestore}
	}
	return key, nil
}

// readCert returns the first certificate in path, or nil if there is no such file.
func readCert(path string) (*x509.Certificate, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	return parseCert(path, data)
}

// parseCert returns the first certificate in data, which was read from path, or nil if data is nil.
func parseCert(path string, data []byte) (*x509.Certificate, error) {
	if data == nil {
		return nil, nil
	}
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return nil, &FileError{path, errors.New("it holds no certificate in PEM"), hintRestore}
	}
	return certs[0], nil
}

const hintRestore = "restore it from a backup, or delete it: sqube then makes a new one, and everything that the old one signed becomes invalid"

func matches(cert *x509.Certificate, key crypto.Signer) bool {
	pub, ok := cert.PublicKey.(publicKey)
	return ok && pub.Equal(key.Public())
}

func mismatch(p Pair) error {
	return &FileError{p.CertFile, fmt.Errorf("it does not belong to the key in %s", p.KeyFile),
		"restore a matching pair from a backup, or delete both: sqube then makes new ones, and everything that the old ones signed becomes invalid"}
}
