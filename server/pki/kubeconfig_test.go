package pki

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"

	"github.com/sqube/sqube/test/harness"
)

// TestTrustedWithoutFinalNewline trusts an authority whose file lacks the final newline beside the operator's certificate.
func TestTrustedWithoutFinalNewline(t *testing.T) {
	dir := t.TempDir()
	p := ensure(t, dir, options)
	own := filepath.Join(t.TempDir(), "own.crt")
	copyFile(t, p.Serving.CertFile, own)
	authority, err := os.ReadFile(p.CA.CertFile)
	harness.Must(t, err)
	harness.Must(t, os.WriteFile(p.CA.CertFile, bytes.TrimSpace(authority), 0o644))
	o := options
	o.ServingCertFile = own
	trusted, err := ensure(t, dir, o).Trusted()
	harness.Must(t, err)
	want, err := certutil.CertsFromFile(own)
	harness.Must(t, err)
	certificates, err := certutil.ParseCertsPEM(trusted)
	if err != nil || len(certificates) != 1+len(want) {
		t.Errorf("%d certificates, %v:\n%s", len(certificates), err, trusted)
	}
}

func TestKubeconfigRefuses(t *testing.T) {
	o := options
	o.Server = ""
	p := ensure(t, t.TempDir(), o)
	for name, call := range map[string]func() ([]byte, error){
		"no user":           func() ([]byte, error) { return p.Kubeconfig("https://h", "", nil, 0) },
		"no server":         func() ([]byte, error) { return p.Kubeconfig("", "jane", nil, 0) },
		"negative lifetime": func() ([]byte, error) { return p.Kubeconfig("https://h", "jane", nil, -time.Hour) },
		"too long":          func() ([]byte, error) { return p.Kubeconfig("https://h", "jane", nil, 11*leafLifetime) },
	} {
		if _, err := call(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := Open(t.TempDir()); err == nil {
		t.Error("opening an empty directory: no error")
	}
}

func TestAdminKubeconfigKeepsWhatPeopleAdd(t *testing.T) {
	dir := t.TempDir()
	p := ensure(t, dir, options)
	config, err := clientcmd.LoadFromFile(p.AdminKubeconfig)
	harness.Must(t, err)
	config.Contexts["mine"] = &clientcmdapi.Context{Cluster: entry, AuthInfo: "kubernetes-admin", Namespace: "mine"}
	config.CurrentContext = "mine"
	harness.Must(t, clientcmd.WriteToFile(*config, p.AdminKubeconfig))
	o := options
	o.Server = "https://127.0.0.1:7443"
	ensure(t, dir, o)
	if config, err = clientcmd.LoadFromFile(p.AdminKubeconfig); err != nil {
		t.Fatal(err)
	}
	if config.CurrentContext != "mine" || config.Contexts["mine"] == nil || config.Clusters[entry].Server != o.Server {
		t.Errorf("current context %q, contexts %v, server %s", config.CurrentContext, config.Contexts, config.Clusters[entry].Server)
	}
}

func TestAdminKubeconfigTrustsTheOperatorsCertificate(t *testing.T) {
	dir := t.TempDir()
	o := options
	o.ServingCertFile = filepath.Join(dir, "own.crt")
	copyFile(t, ensure(t, t.TempDir(), options).Serving.CertFile, o.ServingCertFile)
	p := ensure(t, dir, o)
	config, err := clientcmd.LoadFromFile(p.AdminKubeconfig)
	harness.Must(t, err)
	own, err := os.ReadFile(o.ServingCertFile)
	harness.Must(t, err)
	if !bytes.Contains(config.Clusters[entry].CertificateAuthorityData, own) {
		t.Error("it does not trust --tls-cert-file")
	}
	opened, err := Open(dir)
	harness.Must(t, err)
	if data, err := opened.Kubeconfig("", "jane", nil, time.Hour); err != nil {
		t.Error(err)
	} else if jane, err := clientcmd.RESTConfigFromKubeConfig(data); err != nil || jane.Host != o.Server || !bytes.Contains(jane.CAData, own) {
		t.Errorf("jane's kubeconfig points to %s, or does not trust --tls-cert-file: %v", jane.Host, err)
	}
	harness.Must(t, os.Remove(o.ServingCertFile))
	_, err = Ensure(t.Context(), dir, o)
	wantFileError(t, err, o.ServingCertFile)
}
