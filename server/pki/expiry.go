package pki

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"
)

// Certificate is one that a server made.
type Certificate struct {
	// File has it.
	File string
	*x509.Certificate
}

// Certificates returns those that [Ensure] created under dataDir: first the authorities, at last that of the administrator's kubeconfig.
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
