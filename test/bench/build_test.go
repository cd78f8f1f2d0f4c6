package main

import (
	"os/exec"
	"testing"
)

// TestKubeAPIServerResolves finds all packages of kube-apiserver, of which sqube's own go.sum lacks some.
func TestKubeAPIServerResolves(t *testing.T) {
	b, err := newBinaries(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	modfile, err := b.modfile(apiserverProgram)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-mod=mod", "-modfile", modfile, "-deps", apiserverProgram.pkg)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
