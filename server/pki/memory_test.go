package pki

import (
	"crypto/x509"
	"testing"
	"time"
)

// TestInMemory checks that certificates can be created and renewed without files on disk.
func TestInMemory(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	o := options
	o.InMemory, o.Now = true, func() time.Time { return now }
	p := ensure(t, dir, o)
	first := load(t, p.Serving)
	verify(t, first, load(t, p.CA), now, x509.ExtKeyUsageServerAuth, "localhost")

	now = first.NotAfter.Add(-time.Hour)
	p = ensure(t, p.dataDir, p.opts) // as KeepValid does
	second := load(t, p.Serving)
	if !second.NotAfter.After(first.NotAfter) || !second.PublicKey.(publicKey).Equal(first.PublicKey) {
		t.Errorf("renewal changed the expiry from %s to %s, or changed the key", first.NotAfter, second.NotAfter)
	}
	if files := contents(t, dir); len(files) != 1 || files[p.AdminKubeconfig] == "" {
		t.Errorf("there are %d files", len(files))
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
