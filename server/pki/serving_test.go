package pki

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/sqube/sqube/test/harness"
)

// handshake connects to s as the client in pair and returns the certificates that each side presented.
func handshake(s *Serving, pair Pair, ca *x509.Certificate) (server, client *x509.Certificate, err error) {
	cert, err := tls.LoadX509KeyPair(pair.CertFile, pair.KeyFile)
	if err != nil {
		return nil, nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	accepted := tls.Server(far, s.Config())
	done := make(chan error, 1)
	go func() { done <- accepted.Handshake() }()
	dialed := tls.Client(near, &tls.Config{
		RootCAs: roots, ServerName: "localhost", MaxVersion: tls.VersionTLS12,
		GetClientCertificate: func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if err := r.SupportsCertificate(&cert); err != nil {
				return &tls.Certificate{}, nil // like clients whose CA was not requested
			}
			return &cert, nil
		},
	})
	if err := errors.Join(dialed.Handshake(), <-done); err != nil {
		return nil, nil, err
	}
	if peers := accepted.ConnectionState().PeerCertificates; len(peers) > 0 {
		client = peers[0]
	}
	return dialed.ConnectionState().PeerCertificates[0], client, nil
}

func TestServingFollowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	p := ensure(t, dir, options)
	clientCA, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", p.CA.CertFile)
	harness.Must(t, err)
	s, err := NewServing(ServingConfig{Pair: p.Serving, ClientCA: clientCA, TLS: &tls.Config{}})
	harness.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { s.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()

	first, client, err := handshake(s, p.Admin, load(t, p.CA))
	if err != nil || client == nil || client.Subject.CommonName != "kubernetes-admin" {
		t.Fatalf("the server received the client certificate %v, %v", client, err)
	}
	if _, client, err := handshake(s, p.FrontProxyClient, load(t, p.CA)); err != nil || client != nil {
		t.Errorf("a certificate of a CA that was not requested: %v, %v", client, err)
	}
	o := options
	o.ExtraNames = append(o.ExtraNames, "new.example.test")
	ensure(t, dir, o)
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		now, _, err := handshake(s, p.Admin, load(t, p.CA))
		return err == nil && !bytes.Equal(now.Raw, first.Raw) && now.VerifyHostname("new.example.test") == nil, err
	})
	if err != nil {
		t.Errorf("the renewed certificate is not served: %v", err)
	}
}

func TestServingRefusesAMismatch(t *testing.T) {
	p := ensure(t, t.TempDir(), options)
	clientCA, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", p.CA.CertFile)
	harness.Must(t, err)
	_, err = NewServing(ServingConfig{Pair: Pair{CertFile: p.Serving.CertFile, KeyFile: p.Admin.KeyFile}, ClientCA: clientCA, TLS: &tls.Config{}})
	wantFileError(t, err, p.Serving.CertFile)
}
