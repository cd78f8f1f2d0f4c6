package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"time"

	utilcache "k8s.io/apimachinery/pkg/util/cache"
)

const (
	// namedLifetime is that of a serving certificate that is issued when a client asks for its name; it is issued again when half of it is over.
	namedLifetime = 7 * 24 * time.Hour
	// maxNamed is how many of them are kept.
	maxNamed = 256
)

// NamedIssuer issues serving certificates for names when clients ask for them. One is for all names under the same parent, so that
// a client can't tell which of them exist.
type NamedIssuer struct {
	pki   *PKI
	known *utilcache.LRUExpireCache
	key   func() (crypto.Signer, error) // of all of them
}

// NamedIssuer returns one that issues by CA.
func (p *PKI) NamedIssuer() *NamedIssuer {
	return &NamedIssuer{pki: p, known: utilcache.NewLRUExpireCache(maxNamed), key: sync.OnceValues(func() (crypto.Signer, error) {
		key, _, err := newKey()
		return key, err
	})}
}

// Certificate returns a certificate for a DNS name. It returns an error for what is none, and without the key of the CA.
func (n *NamedIssuer) Certificate(name string) (*tls.Certificate, error) {
	_, parent, _ := strings.Cut(strings.ToLower(name), ".")
	if known, ok := n.known.Get(parent); ok {
		return known.(*tls.Certificate), nil
	}
	key, err := n.key()
	if err != nil {
		return nil, err
	}
	is := subject{name: "kube-apiserver", usage: x509.ExtKeyUsageServerAuth}
	if !is.addDNS("*." + parent) {
		return nil, fmt.Errorf("%q can't be in a certificate: it is no DNS name", name)
	}
	issued, err := n.pki.ca.issue(is, key.Public(), n.pki.opts.now(), namedLifetime)
	if err != nil {
		return nil, err
	}
	cert, err := parseCert(n.pki.CA.CertFile, issued)
	if err != nil {
		return nil, err
	}
	made := &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
	n.known.Add(parent, made, namedLifetime/2)
	return made, nil
}
