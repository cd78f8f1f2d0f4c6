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

// NewServing reads the certificate in pair. Clients may show a certificate, which is asked of the authorities in clientCA;
// whether it is any good is left to authentication, since clients may also log in without one.
//
// An error names the files that cannot be read or do not belong together.
func NewServing(pair Pair, clientCA dynamiccertificates.CAContentProvider) (*Serving, error) {
	cert, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", pair.CertFile, pair.KeyFile)
	if err != nil {
		return nil, &FileError{pair.CertFile, fmt.Errorf("with the key in %s: %w", pair.KeyFile, err),
			"name a certificate and its key, both PEM, with --tls-cert-file and --tls-private-key-file"}
	}
	base := &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		ClientAuth: tls.RequestClientCert,
	}
	s := &Serving{
		config:     base.Clone(),
		controller: dynamiccertificates.NewDynamicServingCertificateController(base, clientCA, cert, nil, nil),
		followers:  []dynamiccertificates.ControllerRunner{cert},
	}
	cert.AddListener(s.controller)
	clientCA.AddListener(s.controller)
	if follower, ok := clientCA.(dynamiccertificates.ControllerRunner); ok {
		s.followers = append(s.followers, follower)
	}
	if err := s.controller.RunOnce(); err != nil {
		return nil, fmt.Errorf("setting up TLS with %s: %w", pair.CertFile, err)
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
