package pki

import (
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

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
