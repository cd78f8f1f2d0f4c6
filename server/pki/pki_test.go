package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
)

var options = Options{
	BindAddress: net.IPv4(192, 0, 2, 7),
	ServiceIP:   net.IPv4(10, 0, 0, 1),
	ExtraNames:  []string{"api.example.test", "*.example.test", "2001:db8::1"},
	Server:      "https://127.0.0.1:6443",
}

func ensure(t *testing.T, dir string, o Options) *PKI {
	t.Helper()
	p, err := Ensure(t.Context(), dir, o)
	harness.Must(t, err)
	return p
}

func load(t *testing.T, p Pair) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
	harness.Must(t, err)
	return pair.Leaf
}

// contents returns the content of every file under dir, by path.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	harness.Must(t, err)
	return files
}

func verify(t *testing.T, cert, ca *x509.Certificate, at time.Time, usage x509.ExtKeyUsage, names ...string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	for _, name := range append(names, "") {
		if _, err := cert.Verify(x509.VerifyOptions{
			DNSName: name, Roots: roots, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{usage},
		}); err != nil {
			t.Errorf("%s for %q at %s: %v", cert.Subject.CommonName, name, at, err)
		}
	}
}

func TestFirstStart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := ensure(t, dir, options)
	ca, front := load(t, p.CA), load(t, p.FrontProxyCA)

	now := time.Now()
	names := []string{"127.0.0.1", "::1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "192.0.2.7", "10.0.0.1", "api.example.test", "x.example.test", "2001:db8::1"}
	verify(t, load(t, p.Serving), ca, now, x509.ExtKeyUsageServerAuth, names...)
	for pair, groups := range map[Pair][]string{p.Admin: {"system:masters"}, p.KubeletClient: nil} {
		cert := load(t, pair)
		verify(t, cert, ca, now, x509.ExtKeyUsageClientAuth)
		if !slices.Equal(cert.Subject.Organization, groups) {
			t.Errorf("%s has groups %v", cert.Subject.CommonName, cert.Subject.Organization)
		}
	}
	verify(t, load(t, p.FrontProxyClient), front, now, x509.ExtKeyUsageClientAuth)
	verify(t, load(t, p.Serving), ca, now.Add(360*24*time.Hour), x509.ExtKeyUsageServerAuth)
	if key, err := readKey(p.ServiceAccountKey); ca.NotAfter.Before(now.AddDate(9, 11, 0)) || key == nil || err != nil {
		t.Errorf("authority ends %s, service account key %v, %v", ca.NotAfter, key, err)
	}
	for path := range contents(t, dir) {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "pki")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("pki: mode %v, %v", info.Mode(), err)
	}
}

// TestClockJumpsWhileServing sets the clock of a running server forward past the expiry of its certificates.
func TestClockJumpsWhileServing(t *testing.T) {
	dir, start := t.TempDir(), time.Now()
	var jump atomic.Int64
	o := options
	o.Now = func() time.Time { return start.Add(time.Duration(jump.Load())) }
	p := ensure(t, dir, o)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			p.KeepValid(ctx, nil, func(err error) { t.Error(err) })
		}()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		jump.Store(int64(2 * leafLifetime))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for _, pair := range []Pair{p.Serving, p.Admin, p.KubeletClient, p.FrontProxyClient} {
			if cert := load(t, pair); o.Now().After(cert.NotAfter) {
				t.Errorf("%s expired on %s, now it is %s", pair.CertFile, cert.NotAfter, o.Now())
			}
		}
		stop()
		<-ended
	})
}

func TestRenewal(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*Options)
		renewed []string
	}{
		{"31 days left", at(leafLifetime - 31*24*time.Hour), nil},
		{"29 days left", at(leafLifetime - 29*24*time.Hour),
			[]string{"admin.crt", "admin.kubeconfig", "apiserver-kubelet-client.crt", "apiserver.crt", "front-proxy-client.crt"}},
		{"expired", at(2 * leafLifetime),
			[]string{"admin.crt", "admin.kubeconfig", "apiserver-kubelet-client.crt", "apiserver.crt", "front-proxy-client.crt"}},
		{"new bind address", func(o *Options) { o.BindAddress = net.IPv4(192, 0, 2, 8) }, []string{"apiserver.crt"}},
		{"fewer names", func(o *Options) { o.ExtraNames = nil }, nil},
		{"new port", func(o *Options) { o.Server = "https://127.0.0.1:7443" }, []string{"admin.kubeconfig"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			ensure(t, dir, options)
			before := contents(t, dir)
			o := options
			c.change(&o)
			p := ensure(t, dir, o)
			var renewed []string
			for path, data := range contents(t, dir) {
				if data != before[path] {
					renewed = append(renewed, filepath.Base(path))
				}
			}
			if slices.Sort(renewed); !slices.Equal(renewed, c.renewed) {
				t.Errorf("renewed %v, want %v", renewed, c.renewed)
			}
			verify(t, load(t, p.Serving), load(t, p.CA), o.now(), x509.ExtKeyUsageServerAuth, o.BindAddress.String())
		})
	}
}

func at(later time.Duration) func(*Options) {
	now := time.Now().Add(later)
	return func(o *Options) { o.Now = func() time.Time { return now } }
}

// After a power failure, any file may be missing, but existing files are complete.
func TestMissingFilesAreRepaired(t *testing.T) {
	dir := t.TempDir()
	ensure(t, dir, options)
	for path := range contents(t, dir) {
		name := filepath.Base(path)
		if name == "ca.key" || name == "front-proxy-ca.key" {
			continue // TestAuthorityWithoutKey
		}
		t.Run(name, func(t *testing.T) {
			harness.Must(t, os.Remove(path))
			p := ensure(t, dir, options)
			verify(t, load(t, p.Serving), load(t, p.CA), time.Now(), x509.ExtKeyUsageServerAuth, "127.0.0.1")
			verify(t, load(t, p.Admin), load(t, p.CA), time.Now(), x509.ExtKeyUsageClientAuth)
			verify(t, load(t, p.FrontProxyClient), load(t, p.FrontProxyCA), time.Now(), x509.ExtKeyUsageClientAuth)
			if _, err := clientcmd.LoadFromFile(p.AdminKubeconfig); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNewAuthorityReissuesEverything(t *testing.T) {
	dir := t.TempDir()
	p := ensure(t, dir, options)
	for _, path := range []string{p.CA.CertFile, p.CA.KeyFile} {
		harness.Must(t, os.Remove(path))
	}
	p = ensure(t, dir, options)
	verify(t, load(t, p.Serving), load(t, p.CA), time.Now(), x509.ExtKeyUsageServerAuth, "127.0.0.1")
	verify(t, load(t, p.Admin), load(t, p.CA), time.Now(), x509.ExtKeyUsageClientAuth)
}

func TestAuthorityWithoutKey(t *testing.T) {
	dir := t.TempDir()
	p := ensure(t, dir, options)
	harness.Must(t, os.Remove(p.CA.KeyFile))
	ensure(t, dir, options) // nothing to issue
	o := options
	at(2 * leafLifetime)(&o)
	_, err := Ensure(t.Context(), dir, o)
	wantFileError(t, err, p.CA.KeyFile)
	if load(t, p.Serving) == nil {
		t.Error("the failed renewal removed the old certificate")
	}
}

func TestUnusableFilesAreReported(t *testing.T) {
	for _, c := range []struct {
		name   string
		damage func(t *testing.T, p *PKI) string // returns the path that the error must have
	}{
		{"certificate of another key", func(t *testing.T, p *PKI) string {
			copyFile(t, p.Admin.CertFile, p.Serving.CertFile)
			return p.Serving.CertFile
		}},
		{"key of another certificate", func(t *testing.T, p *PKI) string {
			copyFile(t, p.Serving.KeyFile, p.CA.KeyFile)
			return p.CA.CertFile
		}},
		{"authority that is not a CA", func(t *testing.T, p *PKI) string {
			copyFile(t, p.Serving.KeyFile, p.CA.KeyFile)
			copyFile(t, p.Serving.CertFile, p.CA.CertFile)
			return p.CA.CertFile
		}},
		{"no PEM in a certificate", func(t *testing.T, p *PKI) string { return overwrite(t, p.Serving.CertFile) }},
		{"no PEM in a key", func(t *testing.T, p *PKI) string { return overwrite(t, p.FrontProxyCA.KeyFile) }},
		{"no PEM in the service account key", func(t *testing.T, p *PKI) string { return overwrite(t, p.ServiceAccountKey) }},
		{"no YAML in the kubeconfig", func(t *testing.T, p *PKI) string { return overwrite(t, p.AdminKubeconfig) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := c.damage(t, ensure(t, dir, options))
			before := contents(t, dir)
			_, err := Ensure(t.Context(), dir, options)
			wantFileError(t, err, path)
			if after := contents(t, dir); after[path] != before[path] {
				t.Error("the reported file was changed")
			}
		})
	}
}

func wantFileError(t *testing.T, err error, path string) {
	t.Helper()
	var fileErr *FileError
	if !errors.As(err, &fileErr) {
		t.Fatalf("got %v, want a FileError", err)
	}
	if fileErr.Path != path || fileErr.Hint == "" {
		t.Errorf("got %v, want it to name %s", err, path)
	}
	if strings.Contains(err.Error(), "PRIVATE KEY-----") {
		t.Errorf("the error shows a key: %v", err)
	}
}

func overwrite(t *testing.T, path string) string {
	t.Helper()
	harness.Must(t, os.WriteFile(path, []byte("{not what it was"), fileMode))
	return path
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, fileMode)
	}
	harness.Must(t, err)
}

func TestUnfinishedFilesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	p := ensure(t, dir, options)
	left := []string{filepath.Join(filepath.Dir(p.CA.CertFile), ".ca.key.unfinished-123"), filepath.Join(dir, ".admin.kubeconfig.unfinished-123")}
	backup := filepath.Join(dir, ".backup.db.unfinished-123") // which another process is writing
	for _, path := range append(left, backup) {
		harness.Must(t, os.WriteFile(path, nil, fileMode))
	}
	ensure(t, dir, options)
	for _, path := range left {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if _, err := os.Stat(backup); err != nil {
		t.Errorf("the backup has been removed: %v", err)
	}
}

func TestConcurrentFirstStarts(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, err := Ensure(t.Context(), dir, options); err != nil {
				t.Error(err)
			}
		}()
	}
	wg.Wait()
	p := ensure(t, dir, options)
	verify(t, load(t, p.Serving), load(t, p.CA), time.Now(), x509.ExtKeyUsageServerAuth, "127.0.0.1")
}
