package pki

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
)

// renewBefore is how long before its expiry a certificate is renewed. A certificate whose lifetime is shorter than three times that
// is renewed when a third of its lifetime remains.
const renewBefore = 30 * 24 * time.Hour

// ensureLeaf reads the pair that a issued to s, and creates or renews it if needed. Renewal keeps the key, so the pair always
// matches, even for a process that reloads the files while they are replaced.
func ensureLeaf(pair Pair, a *authority, s subject, now time.Time) error {
	key, err := readKey(pair.KeyFile)
	if err != nil {
		return err
	}
	cert, err := readCert(pair.CertFile)
	if err != nil {
		return err
	}
	switch {
	case cert != nil && key != nil && !matches(cert, key):
		return mismatch(pair)
	case cert != nil && key != nil && serves(cert, a, s, now):
		return nil
	}
	if a.key == nil { // return the error before anything is changed
		_, err := a.issue(s, nil, now, leafLifetime)
		return err
	}
	if key == nil {
		if key, err = replaceKey(pair); err != nil {
			return err
		}
	}
	data, err := a.issue(s, key.Public(), now, leafLifetime)
	if err != nil {
		return err
	}
	return writeFile(pair.CertFile, data)
}

// replaceKey generates a key for a pair that lost its key. It removes the certificate first, so that a power failure can't leave a
// certificate with a key that does not match.
func replaceKey(pair Pair) (crypto.Signer, error) {
	if err := removeFile(pair.CertFile); err != nil {
		return nil, err
	}
	key, data, err := newKey()
	if err != nil {
		return nil, err
	}
	return key, writeFile(pair.KeyFile, data)
}

// serves reports whether cert can still be used for s.
func serves(cert *x509.Certificate, a *authority, s subject, now time.Time) bool {
	if now.Before(cert.NotBefore) || renewalDue(cert, now) {
		return false
	}
	if cert.CheckSignatureFrom(a.cert) != nil {
		return false // the authority has been replaced
	}
	if cert.Subject.CommonName != s.name || !slices.Equal(cert.Subject.Organization, s.groups) {
		return false
	}
	if !slices.Contains(cert.ExtKeyUsage, s.usage) || !sets.New(cert.DNSNames...).HasAll(s.dns...) {
		return false
	}
	for _, ip := range s.ips {
		if !slices.ContainsFunc(cert.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

func renewalDue(cert *x509.Certificate, now time.Time) bool {
	margin := min(renewBefore, cert.NotAfter.Sub(cert.NotBefore)/3)
	return cert.NotAfter.Sub(now) < margin
}

const (
	// renewEvery is how often a running server checks whether certificates need renewal.
	renewEvery = 12 * time.Hour
	// retryRenewal is how soon it checks again after a failure.
	retryRenewal = 10 * time.Minute
	// clockEvery is how often it looks whether the clock has jumped, such as that of a board without a battery, which is set by the
	// network after the start.
	clockEvery = time.Minute
)

// KeepValid renews certificates until ctx ends, so that a server that runs for a year never serves an expired certificate. Users of
// the files must watch them, like the content providers of k8s.io/apiserver/pkg/server/dynamiccertificates. KeepValid reports
// failures, and retries. It also looks at the files, and has [Guard] record them, after changed, such as when an operator has replaced
// an authority.
func (p *PKI) KeepValid(ctx context.Context, changed <-chan struct{}, report func(error)) {
	every := clockEvery
	if p.opts.InMemory { // no board, but a test
		every = renewEvery
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for last := p.ensured; ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
			last = time.Time{}
		case <-ticker.C:
		}
		now := p.opts.now().Round(0) // by the wall clock: certificates expire by it, and timers ignore its jumps
		if since := now.Sub(last); since >= 0 && since < renewEvery {
			continue
		}
		last = now
		if _, err := Ensure(ctx, p.dataDir, p.opts); err != nil {
			report(err)
			last = now.Add(retryRenewal - renewEvery)
		}
	}
}

// Certificate is one that a server made.
type Certificate struct {
	// File has it.
	File string
	*x509.Certificate
}

// Certificates returns those that [Ensure] created under dataDir: first the authorities, last that of the administrator's kubeconfig.
// It returns a [*FileError] for a file that can't be read, and if there are none.
func Certificates(dataDir string) ([]Certificate, error) {
	p := layout(dataDir, Options{})
	var all []Certificate
	add := func(file string, pem []byte, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		var certs []*x509.Certificate
		if err == nil {
			certs, err = cert.ParseCertsPEM(pem)
		}
		if err != nil {
			return &FileError{file, err, "restore it from a backup, or move it away and start the server, which makes a new one"}
		}
		for _, c := range certs {
			all = append(all, Certificate{file, c})
		}
		return nil
	}
	for _, pair := range []Pair{p.CA, p.FrontProxyCA, p.Serving, p.KubeletClient, p.FrontProxyClient, p.Admin} {
		pem, err := os.ReadFile(pair.CertFile)
		if err := add(pair.CertFile, pem, err); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, &FileError{p.CA.CertFile, errors.New("there are no certificates yet"),
			"start the server once (sqube serve), or give its data directory"}
	}
	kubeconfig, err := clientcmd.LoadFromFile(p.AdminKubeconfig)
	if err != nil {
		return all, add(p.AdminKubeconfig, nil, err)
	}
	for _, user := range kubeconfig.AuthInfos {
		if len(user.ClientCertificateData) > 0 {
			if err := add(p.AdminKubeconfig, user.ClientCertificateData, nil); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}
