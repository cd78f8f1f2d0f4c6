package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	cliflag "k8s.io/component-base/cli/flag"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/sqube/sqube/server/connections"
	"github.com/sqube/sqube/server/flagcheck"
	"github.com/sqube/sqube/server/pki"
)

// newServing returns kube-apiserver's defaults for the port and TLS, but no --cert-dir: certificates are made under --data-dir.
func newServing() *genericoptions.SecureServingOptions {
	o := kubeoptions.NewSecureServingOptions().SecureServingOptions
	o.ServerCert.CertDirectory = ""
	o.HTTP2MaxStreamsPerConnection = connections.DefaultMaxStreams
	return o
}

// addServingFlags adds kube-apiserver's flags for the port and TLS.
func addServingFlags(fs *pflag.FlagSet, o *genericoptions.SecureServingOptions) {
	o.AddFlags(fs)
	for name, usage := range map[string]string{
		"bind-address":                     "Address to listen on. 0.0.0.0 and :: mean all addresses of this machine.",
		"secure-port":                      "Port to serve HTTPS on.",
		"cert-dir":                         "Folder with a serving certificate, apiserver.crt and apiserver.key, used if --tls-cert-file is unset.",
		"tls-cert-file":                    "File with the serving certificate and its chain, in PEM. If unset, the server issues one under --data-dir.",
		"tls-private-key-file":             "File with the key of --tls-cert-file in PEM.",
		"disable-http2-serving":            "Serve HTTP/1.1 only.",
		"http2-max-streams-per-connection": "How many requests one HTTP/2 connection may carry at once.",
		"tls-curve-preferences":            "Allowed key exchanges, as numbers of Go's crypto/tls.CurveID. If unset, Go's defaults.",
		"tls-sni-cert-key": "A certificate and its key, as FILE,FILE, for clients that request one of the certificate's names, or for one of " +
			"the names after a colon: FILE,FILE:*.example.com,example.com. Files are reloaded when they change. May be repeated.",
		"permit-port-sharing": "Let other processes listen on the same address and port (SO_REUSEPORT).",
	} {
		fs.Lookup(name).Usage = usage
	}
	fs.Lookup("permit-address-sharing").Hidden = true // Go sets SO_REUSEADDR on every listener
}

// completeServing checks the flags for the port and TLS.
func (o *Options) completeServing() error {
	var errs flagcheck.Problems
	s := o.Serving
	errs.Unless(s.BindPort >= 1 && s.BindPort <= 65535, "--secure-port %d must be between 1 and 65535", s.BindPort)
	pair := &s.ServerCert.CertKey
	errs.Unless((pair.CertFile == "") == (pair.KeyFile == ""), "--tls-cert-file and --tls-private-key-file must be given together")
	if pair.CertFile == "" && s.ServerCert.CertDirectory != "" {
		errs = append(errs, o.findServingPair())
	}
	errs.Readable("tls-cert-file", pair.CertFile)
	errs.Readable("tls-private-key-file", pair.KeyFile)
	for _, named := range s.SNICertKeys {
		_, err := tls.LoadX509KeyPair(named.CertFile, named.KeyFile)
		errs.Unless(err == nil, "--tls-sni-cert-key %s,%s must name a certificate and its key: %w", named.CertFile, named.KeyFile, err)
	}
	errs.Unless(s.HTTP2MaxStreamsPerConnection >= 0, "--http2-max-streams-per-connection must be 0 or more")
	if s.HTTP2MaxStreamsPerConnection == 0 {
		s.HTTP2MaxStreamsPerConnection = connections.DefaultMaxStreams // like upstream
	}
	return errors.Join(append(errs, o.completeTLS())...)
}

// completeTLS translates the names and numbers of TLS settings to those of package tls.
func (o *Options) completeTLS() error {
	s := o.Serving
	ciphers, err := cliflag.TLSCipherSuites(s.CipherSuites)
	if err != nil {
		return fmt.Errorf("--tls-cipher-suites: %w", err)
	}
	curves, err := cliflag.TLSCurvePreferences(s.CurvePreferences)
	if err != nil {
		return fmt.Errorf("--tls-curve-preferences: %w", err)
	}
	version, err := cliflag.TLSVersion(s.MinTLSVersion)
	if err != nil {
		return fmt.Errorf("--tls-min-version: %w", err)
	}
	insecure := cliflag.InsecureTLSCiphers()
	for _, name := range s.CipherSuites {
		if _, is := insecure[name]; is {
			slog.Warn("a cipher suite is insecure", "flag", "--tls-cipher-suites", "suite", name)
		}
	}
	o.tls = &tls.Config{MinVersion: version, CipherSuites: ciphers, CurvePreferences: curves, NextProtos: []string{"h2", "http/1.1"}}
	if s.DisableHTTP2Serving {
		o.tls.NextProtos = []string{"http/1.1"}
	}
	return nil
}

// findServingPair looks for a certificate in --cert-dir. If there is none, the server makes its own under --data-dir.
func (o *Options) findServingPair() error {
	dir := o.Serving.ServerCert.CertDirectory
	pair := genericoptions.CertKey{CertFile: filepath.Join(dir, "apiserver.crt"), KeyFile: filepath.Join(dir, "apiserver.key")}
	_, noCert := os.Stat(pair.CertFile)
	_, noKey := os.Stat(pair.KeyFile)
	switch {
	case os.IsNotExist(noCert) && os.IsNotExist(noKey):
		slog.Warn("a folder has no apiserver.crt and apiserver.key: using the serving certificate under --data-dir", "flag", "--cert-dir", "folder", dir)
		return nil
	case noCert != nil || noKey != nil:
		return fmt.Errorf("--cert-dir %s must hold both apiserver.crt and apiserver.key, or neither: %w", dir, errors.Join(noCert, noKey))
	}
	o.Serving.ServerCert.CertKey = pair
	return nil
}

// sni are the certificates of --tls-sni-cert-key.
func (o *Options) sni() []pki.NamedPair {
	var pairs []pki.NamedPair
	for _, named := range o.Serving.SNICertKeys {
		pairs = append(pairs, pki.NamedPair{Pair: pki.Pair{CertFile: named.CertFile, KeyFile: named.KeyFile}, Names: slices.Clone(named.Names)})
	}
	return pairs
}

// Listen listens on the port. Call it before anything else, so that a port in use is reported at once.
func Listen(o *Options) (net.Listener, error) {
	s := o.Serving
	config := net.ListenConfig{Control: func(_, _ string, conn syscall.RawConn) error {
		var failed error
		err := conn.Control(func(fd uintptr) {
			if s.PermitPortSharing {
				failed = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}
		})
		return errors.Join(err, failed)
	}}
	listener, err := config.Listen(context.Background(), "tcp", net.JoinHostPort(s.BindAddress.String(), strconv.Itoa(s.BindPort)))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("port %d of %s is in use: stop the process that listens there, or choose another port with --secure-port", s.BindPort, s.BindAddress)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, fmt.Errorf("--bind-address %s is not an address of this machine", s.BindAddress)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("this user may not use port %d: choose one above 1023 with --secure-port", s.BindPort)
	}
	return listener, err
}
