package server

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/sqube/sqube/server/pki"
)

// PeerURL is where other servers on the same database reach this one, whatever is in front of them for clients.
func (s *Server) PeerURL() string {
	o := s.options
	address := o.advertised()
	if bound := o.Serving.BindAddress; address == nil || bound != nil && bound.IsLoopback() {
		return o.URL()
	}
	return "https://" + net.JoinHostPort(address.String(), strconv.Itoa(o.Serving.BindPort))
}

// PeerTLS is the configuration of a client that is this server, and calls another one at its PeerURL. The certificate that it presents is that
// of the front proxy, whose authority all servers on the database share and nobody else has.
func (s *Server) PeerTLS() (*tls.Config, error) {
	trusted, err := s.ServingCA()
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AppendCertsFromPEM(trusted)
	if name := s.options.ExternalHost; name != "" { // the certificate that the operator gives may have no addresses
		if config.ServerName, _, err = net.SplitHostPort(name); err != nil {
			config.ServerName = name
		}
	}
	pair := s.pki.FrontProxyClient
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		certificate, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile) // it is renewed
		return &certificate, err
	}
	return config, nil
}

// FromPeer reports whether a request comes from another server on the database, by PeerTLS.
func (s *Server) FromPeer(r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	leaf := r.TLS.PeerCertificates[0]
	if leaf.Subject.CommonName != pki.FrontProxyName {
		return false
	}
	authority, err := os.ReadFile(s.pki.FrontProxyCA.CertFile)
	if err != nil {
		return false
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	_, err = leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}
