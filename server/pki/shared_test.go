package pki

import (
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/sqube/sqube/test/harness"
)

// memory is a SharedStore in memory.
type memory struct {
	mu   sync.Mutex
	kept Shared
}

func (m *memory) Update(_ context.Context, change func(Shared) (Shared, error)) (Shared, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next, err := change(m.kept)
	if err == nil {
		m.kept = next
	}
	return next, err
}

func withStore(v SharedStore) Options {
	o := options
	o.SharedStore = v
	return o
}

// sharedIn returns the shared files under dir.
func sharedIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := contents(t, dir)
	files := map[string]string{}
	for _, name := range sharedFiles {
		files[name] = all[filepath.Join(dir, "pki", name)]
	}
	return files
}

func TestSharedStoreTakesExistingFiles(t *testing.T) {
	shared, dir := &memory{}, t.TempDir()
	ensure(t, dir, options)
	before := contents(t, dir)
	ensure(t, dir, withStore(shared))
	for path, data := range contents(t, dir) {
		if data != before[path] {
			t.Errorf("%s was replaced", path)
		}
	}
	other := t.TempDir()
	ensure(t, other, withStore(shared))
	for name, data := range sharedIn(t, other) {
		if data != sharedIn(t, dir)[name] {
			t.Errorf("%s differs", name)
		}
	}
}

func TestOtherKeysAreNotReplaced(t *testing.T) {
	shared := &memory{}
	ensure(t, t.TempDir(), withStore(shared))
	for _, name := range sharedFiles {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			p := ensure(t, dir, options)
			for _, other := range sharedFiles {
				if other != name {
					harness.Must(t, os.Remove(p.path(other)))
				}
			}
			before := contents(t, dir)
			_, err := Ensure(t.Context(), dir, withStore(shared))
			wantFileError(t, err, p.path(name))
			if contents(t, dir)[p.path(name)] != before[p.path(name)] {
				t.Error("the reported file was changed")
			}
		})
	}
}

func TestSharedStoreNeedsTheKeysOfAuthorities(t *testing.T) {
	dir := t.TempDir()
	p := ensure(t, dir, options)
	harness.Must(t, os.Remove(p.CA.KeyFile))
	shared := &memory{}
	_, err := Ensure(t.Context(), dir, withStore(shared))
	wantFileError(t, err, p.CA.KeyFile)
	if shared.kept != nil {
		t.Error("the shared store accepted incomplete keys")
	}
}

func TestAuthoritiesAreExtended(t *testing.T) {
	shared := &memory{}
	for name, o := range map[string]Options{"in files": options, "in a shared store": withStore(shared)} {
		t.Run(name, func(t *testing.T) {
			dirs := []string{t.TempDir(), t.TempDir()}
			if o.SharedStore == nil {
				dirs = dirs[:1]
			}
			var old *x509.Certificate
			for _, dir := range dirs {
				old = load(t, ensure(t, dir, o).CA)
			}
			later := o
			at(caLifetime - 300*24*time.Hour)(&later)
			var extended *x509.Certificate
			for i, dir := range dirs {
				p := ensure(t, dir, later)
				ca := load(t, p.CA)
				if i > 0 && !ca.Equal(extended) {
					t.Error("each server extended the authority by itself")
				}
				extended = ca
				if ca.NotAfter.Before(later.now().Add(caLifetime - time.Hour)) {
					t.Errorf("the authority ends %s", ca.NotAfter)
				}
				// Clients that trust only one of the two certificates accept leaves issued under either.
				verify(t, load(t, p.Serving), old, later.now(), x509.ExtKeyUsageServerAuth, "127.0.0.1")
				verify(t, load(t, p.Serving), ca, later.now(), x509.ExtKeyUsageServerAuth, "127.0.0.1")
				verify(t, load(t, p.FrontProxyClient), load(t, p.FrontProxyCA), later.now(), x509.ExtKeyUsageClientAuth)
			}
		})
	}
}

func TestAnOperatorsAuthorityIsNotExtended(t *testing.T) {
	dir := t.TempDir()
	p := ensure(t, dir, options)
	data, err := selfSign("operators-ca", p.ca.key, time.Now())
	harness.Must(t, err)
	harness.Must(t, writeFile(p.CA.CertFile, data))
	o := options
	at(caLifetime - 300*24*time.Hour)(&o)
	ensure(t, dir, o)
	if ca := load(t, p.CA); ca.NotAfter.After(o.now().Add(caLifetime / 2)) {
		t.Errorf("it was extended to %s", ca.NotAfter)
	}
}

// guardFunc is a Guard that takes any keys.
type guardFunc func(files Shared, written bool)

func (g guardFunc) Check(_ context.Context, files Shared) error { g(files, false); return nil }

func (g guardFunc) Record(_ context.Context, files Shared) error { g(files, true); return nil }

// TestGuardSeesFiles records what a guard is asked, and when: before and after the files are written, and after a change of them.
func TestGuardSeesFiles(t *testing.T) {
	dir, asked := t.TempDir(), make(chan string, 10)
	o := options
	o.Guard = guardFunc(func(files Shared, written bool) {
		_, err := os.Stat(filepath.Join(dir, "pki", caCert))
		if complete := files.CA() != nil && files.ServiceAccountKey() != nil; !complete {
			t.Errorf("the guard gets only %v", files)
		}
		asked <- fmt.Sprintf("%v %v", written, err == nil)
	})
	p := ensure(t, dir, o)
	if first, second := <-asked, <-asked; first != "false false" || second != "true true" {
		t.Errorf("the guard was asked with files written: %s, then %s", first, second)
	}
	ctx, stop := context.WithCancel(t.Context())
	changed, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		p.KeepValid(ctx, changed, func(err error) { t.Error(err) })
	}()
	changed <- struct{}{}
	<-asked
	if last := <-asked; last != "true true" {
		t.Errorf("after a change: %s", last)
	}
	stop()
	<-ended
}
