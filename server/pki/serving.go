package pki

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// Serving is the TLS side of a server: which certificate it shows and whose certificates it asks of clients. Both follow
// their files while [Serving.Run] runs, without a restart and without ending connections.
type Serving struct {
	config     *tls.Config
	controller *dynamiccertificates.DynamicServingCertificateController
	followers  []dynamiccertificates.ControllerRunner
}

// ServingConfig is what a server shows and asks for. All fields but Named are required.
type ServingConfig struct {
	Pair  Pair        // for clients that ask for none of the names in Named
	Named []NamedPair // for clients that ask for one of their names
	// ClientCA has the authorities that clients' certificates may be of. Whether a certificate is any good is left to
	// authentication, since clients may also log in without one.
	ClientCA dynamiccertificates.CAContentProvider
	TLS      *tls.Config // versions, ciphers, curves and protocols
}

// NamedPair is a certificate for single names.
type NamedPair struct {
	Pair
	Names []string // which may begin with "*."; none for those in the certificate
}

// NewServing reads the certificates. An error names the files that cannot be read or do not belong together.
func NewServing(c ServingConfig) (*Serving, error) {
	cert, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", c.Pair.CertFile, c.Pair.KeyFile)
	if err != nil {
		return nil, &FileError{c.Pair.CertFile, fmt.Errorf("with the key in %s: %w", c.Pair.KeyFile, err),
			"name a certificate and its key, both PEM, with --tls-cert-file and --tls-private-key-file"}
	}
	s := &Serving{followers: []dynamiccertificates.ControllerRunner{cert}}
	var named []dynamiccertificates.SNICertKeyContentProvider
	for _, n := range c.Named {
		content, err := dynamiccertificates.NewDynamicSNIContentFromFiles("sni-serving-cert", n.CertFile, n.KeyFile, n.Names...)
		if err != nil {
			return nil, &FileError{n.CertFile, fmt.Errorf("with the key in %s: %w", n.KeyFile, err),
				"name a certificate and its key, both PEM, with --tls-sni-cert-key"}
		}
		named = append(named, content)
		s.followers = append(s.followers, content)
	}
	base := c.TLS.Clone()
	base.ClientAuth = tls.RequestClientCert
	s.config = base.Clone()
	s.controller = dynamiccertificates.NewDynamicServingCertificateController(base, c.ClientCA, cert, named, nil)
	cert.AddListener(s.controller)
	c.ClientCA.AddListener(s.controller)
	for _, content := range named {
		content.AddListener(s.controller)
	}
	if follower, ok := c.ClientCA.(dynamiccertificates.ControllerRunner); ok {
		s.followers = append(s.followers, follower)
	}
	if err := s.controller.RunOnce(); err != nil {
		return nil, fmt.Errorf("setting up TLS with %s: %w", c.Pair.CertFile, err)
	}
	s.config.GetConfigForClient = s.controller.GetConfigForClient
	return s, nil
}

// Config is for the server's listener.
func (s *Serving) Config() *tls.Config { return s.config }

// Run follows the files until ctx ends.
func (s *Serving) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { s.controller.Run(1, ctx.Done()) })
	for _, f := range s.followers {
		wg.Go(func() { f.Run(ctx, 1) })
	}
	wg.Wait()
}
