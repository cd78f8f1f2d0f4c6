package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// Serving is the TLS configuration of a server: the certificate that it presents, and the authorities of client certificates. While
// [Serving.Run] runs, both are reloaded when their files change, without a restart and without closing connections.
type Serving struct {
	config     *tls.Config
	controller *dynamiccertificates.DynamicServingCertificateController
	followers  []dynamiccertificates.ControllerRunner
	inMemory   bool
}

// ServingConfig configures Serving. All fields except Named are required.
type ServingConfig struct {
	Pair  Pair        // for clients that request no name in Named
	Named []NamedPair // for clients that request a name of one of these
	// ClientCA has the authorities of client certificates. Authentication verifies the certificates, since clients may also
	// authenticate without one.
	ClientCA dynamiccertificates.CAContentProvider
	// AnyClientCA lets clients send certificates of other authorities too, which the server passes requests on for.
	AnyClientCA bool
	// Issue returns a certificate for a name that a client asks for and that none of the others is for, nil if there is none. Optional.
	Issue    func(name string) *tls.Certificate
	TLS      *tls.Config // versions, ciphers, curves and protocols
	InMemory bool        // as in Options
}

// NamedPair is a certificate for some names.
type NamedPair struct {
	Pair
	Names []string // may begin with "*."; if empty, those in the certificate
}

// NewServing reads the certificates. Errors name files that can't be read or do not match.
func NewServing(c ServingConfig) (*Serving, error) {
	cert, err := dynamiccertificates.NewDynamicServingContentFromFiles("serving-cert", c.Pair.CertFile, c.Pair.KeyFile)
	if err != nil {
		return nil, &FileError{c.Pair.CertFile, fmt.Errorf("with the key in %s: %w", c.Pair.KeyFile, err),
			"name a certificate and its key, both PEM, with --tls-cert-file and --tls-private-key-file"}
	}
	s := &Serving{followers: []dynamiccertificates.ControllerRunner{cert}, inMemory: c.InMemory}
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
	if c.AnyClientCA || c.Issue != nil {
		s.config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			config, err := s.controller.GetConfigForClient(hello) // a copy
			if err == nil {
				c.change(config, hello)
			}
			return config, err
		}
	}
	return s, nil
}

// change changes the configuration for a client.
func (c *ServingConfig) change(config *tls.Config, hello *tls.ClientHelloInfo) {
	if c.AnyClientCA {
		config.ClientCAs = nil // a client sends only certificates of the authorities that it is told
	}
	if c.Issue == nil || hello.ServerName == "" || slices.ContainsFunc(config.Certificates, func(one tls.Certificate) bool { return hello.SupportsCertificate(&one) == nil }) {
		return
	}
	if issued := c.Issue(hello.ServerName); issued != nil {
		config.Certificates = []tls.Certificate{*issued}
	}
}

// Follow lets content follow its files until ctx ends; it returns then, or earlier. Upstream's runner watches each file with an inotify
// instance, of which a user has 128. Servers in tests are many, and their files are in memory: these are read again as often as they may
// be renewed.
func Follow(ctx context.Context, content dynamiccertificates.ControllerRunner, inMemory bool) {
	if !inMemory {
		content.Run(ctx, 1)
		return
	}
	content.Run(ended(ctx), 1)
	reread(ctx, content.RunOnce)
}

// ended returns a context that has ended. With it, upstream's runners watch nothing, and end their queues, which wake up every 10 s.
func ended(ctx context.Context) context.Context {
	ctx, end := context.WithCancel(ctx)
	end()
	return ctx
}

// reread calls read whenever files in memory may have been renewed, until ctx ends. It does not wait for that, which would take a goroutine.
func reread(ctx context.Context, read func(context.Context) error) {
	timer := time.AfterFunc(renewEvery, func() {
		if ctx.Err() != nil {
			return
		}
		if err := read(ctx); err != nil {
			slog.Error("a certificate can't be read again", "err", err)
		}
		reread(ctx, read)
	})
	context.AfterFunc(ctx, func() { timer.Stop() })
}

// Config returns the configuration of the server's listener.
func (s *Serving) Config() *tls.Config { return s.config }

// Run reloads changed files until ctx ends; it returns then, or earlier.
func (s *Serving) Run(ctx context.Context) {
	following := ctx
	if s.inMemory {
		following = ended(ctx)
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.controller.Run(1, following.Done()) })
	for _, f := range s.followers {
		wg.Go(func() { f.Run(following, 1) })
	}
	if s.inMemory {
		reread(ctx, s.readOnce)
	}
	wg.Wait()
}

func (s *Serving) readOnce(ctx context.Context) error {
	for _, f := range s.followers {
		if err := f.RunOnce(ctx); err != nil {
			return err
		}
	}
	return s.controller.RunOnce()
}

// servingSubject returns the subject of the serving certificate, with every name that clients may use for the server.
func servingSubject(o Options) (subject, error) {
	s := subject{
		name:  "kube-apiserver",
		usage: x509.ExtKeyUsageServerAuth,
		// The names that pods use, like kubeadm.
		dns: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		ips: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	// A host whose name is unknown, or invalid in DNS, can still be reached by address.
	if name, err := os.Hostname(); err == nil {
		s.addDNS(strings.ToLower(name))
	}
	if o.ServiceIP != nil {
		s.addIP(o.ServiceIP)
	}
	switch {
	case o.BindAddress == nil || o.BindAddress.IsUnspecified():
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			return s, fmt.Errorf("listing this machine's addresses for the serving certificate: %w", err)
		}
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
				s.addIP(n.IP)
			}
		}
	default:
		s.addIP(o.BindAddress)
	}
	for _, name := range o.ExtraNames {
		if err := s.addName(name); err != nil {
			return s, err
		}
	}
	return s, nil
}

// CheckName returns an error if name can't be in a certificate.
func CheckName(name string) error { return new(subject).addName(name) }

// addName adds an IP address or a DNS name, and returns an error for anything else.
func (s *subject) addName(name string) error {
	if ip := net.ParseIP(name); ip != nil {
		s.addIP(ip)
	} else if !s.addDNS(name) {
		return fmt.Errorf("%q can't be in a certificate: it is neither an IP address nor a DNS name", name)
	}
	return nil
}

// addDNS returns false if name is not a DNS name (RFC 1123), with or without a leading wildcard.
func (s *subject) addDNS(name string) bool {
	if len(validation.IsDNS1123Subdomain(name)) > 0 && len(validation.IsWildcardDNS1123Subdomain(name)) > 0 {
		return false
	}
	if !slices.Contains(s.dns, name) {
		s.dns = append(s.dns, name)
	}
	return true
}

func (s *subject) addIP(ip net.IP) {
	if !slices.ContainsFunc(s.ips, ip.Equal) {
		s.ips = append(s.ips, ip)
	}
}
