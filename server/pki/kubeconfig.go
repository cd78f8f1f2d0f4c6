package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// entry is the name of the cluster, and of the context, in kubeconfigs written here.
const entry = "sqube"

// Kubeconfig issues a client certificate for user with the given groups, valid for lifetime (a year if zero), and
// returns a kubeconfig for server with certificate and key embedded. If server is "", it is that of the server that last used the
// data directory.
//
// It returns an error without a user name or server, if the lifetime is negative or longer than the authority's, and if the
// authority's key is missing.
func (p *PKI) Kubeconfig(server, user string, groups []string, lifetime time.Duration) ([]byte, error) {
	now := p.opts.now()
	if lifetime == 0 {
		lifetime = min(leafLifetime, p.ca.cert.NotAfter.Sub(now))
	}
	if server == "" {
		server = p.opts.Server
	}
	switch {
	case user == "":
		return nil, errors.New("a kubeconfig needs a user name")
	case server == "":
		return nil, &FileError{p.AdminKubeconfig, errors.New("it does not have the server's URL"),
			"give its URL with --server, or the data directory of a server"}
	case lifetime < 0:
		return nil, fmt.Errorf("the lifetime %s must be positive", lifetime)
	case now.Add(lifetime).After(p.ca.cert.NotAfter):
		return nil, fmt.Errorf("a certificate cannot outlive its authority (%s), which expires on %s: choose a shorter lifetime",
			p.CA.CertFile, p.ca.cert.NotAfter.Format(time.DateOnly))
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	cert, err := p.ca.issue(subject{name: user, groups: groups, usage: x509.ExtKeyUsageClientAuth}, key.Public(), now, lifetime)
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	if _, err := p.setEntry(config, server, user, cert, keyPEM); err != nil {
		return nil, err
	}
	return clientcmd.Write(*config)
}

// writeAdminKubeconfig updates the administrator's kubeconfig, and keeps entries that a person added.
func (p *PKI) writeAdminKubeconfig() error {
	cert, err := os.ReadFile(p.Admin.CertFile)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(p.Admin.KeyFile)
	if err != nil {
		return err
	}
	existing, err := readFile(p.AdminKubeconfig)
	if err != nil {
		return err
	}
	config, err := clientcmd.Load(existing)
	if err != nil {
		return &FileError{p.AdminKubeconfig, err, "correct it, or delete it: sqube writes a new one at the next start"}
	}
	changed, err := p.setEntry(config, p.opts.Server, "kubernetes-admin", cert, key)
	if err != nil {
		return err
	}
	if !changed {
		return restrict(p.AdminKubeconfig, fileMode)
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return writeFile(p.AdminKubeconfig, data)
}

// readServed reads the server's URL, and the certificates that its clients must trust, from the administrator's kubeconfig if it
// exists.
func (p *PKI) readServed() error {
	text, err := readFile(p.AdminKubeconfig)
	if err != nil {
		return err
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		return &FileError{p.AdminKubeconfig, err, "correct it, or delete it: sqube writes a new one at the next start"}
	}
	cluster := config.Clusters[entry]
	if cluster == nil {
		return nil
	}
	p.opts.Server = cluster.Server
	if bytes.Contains(cluster.CertificateAuthorityData, p.trust) { // otherwise the authority has been replaced since
		p.trust = cluster.CertificateAuthorityData
	}
	return nil
}

// setEntry sets the cluster, the user and the context in config. It reports whether anything changed.
func (p *PKI) setEntry(config *clientcmdapi.Config, server, user string, cert, key []byte) (changed bool, err error) {
	trusted, err := p.Trusted()
	if err != nil {
		return false, err
	}
	cluster := config.Clusters[entry]
	if cluster == nil || cluster.Server != server || !bytes.Equal(cluster.CertificateAuthorityData, trusted) {
		cluster = clientcmdapi.NewCluster()
		cluster.Server, cluster.CertificateAuthorityData = server, trusted
		config.Clusters[entry] = cluster
		changed = true
	}
	auth := config.AuthInfos[user]
	if auth == nil || !bytes.Equal(auth.ClientCertificateData, cert) || !bytes.Equal(auth.ClientKeyData, key) {
		auth = clientcmdapi.NewAuthInfo()
		auth.ClientCertificateData, auth.ClientKeyData = cert, key
		config.AuthInfos[user] = auth
		changed = true
	}
	if config.Contexts[entry] == nil {
		config.Contexts[entry] = clientcmdapi.NewContext()
		config.Contexts[entry].Cluster, config.Contexts[entry].AuthInfo = entry, user
		changed = true
	}
	if config.CurrentContext == "" {
		config.CurrentContext = entry
		changed = true
	}
	return changed, nil
}

// Trusted returns the certificates that clients need to verify the serving certificate, in PEM. If the operator provides the
// serving certificate, they include its chain, whose last certificate may be its CA's.
func (p *PKI) Trusted() ([]byte, error) {
	if p.opts.ServerCA != nil {
		return p.opts.ServerCA, nil
	}
	if p.opts.ServingCertFile == "" || p.opts.ServingCertFile == p.Serving.CertFile {
		return p.trust, nil
	}
	own, err := os.ReadFile(p.opts.ServingCertFile)
	if err != nil {
		return nil, &FileError{p.opts.ServingCertFile, err, "name a readable certificate with --tls-cert-file"}
	}
	return slices.Concat(bytes.TrimRight(p.trust, "\n"), []byte("\n"), own), nil
}
