package main

import (
	"os/exec"
	"testing"
)

// TestKubernetesResolves finds all packages of Kubernetes' programs, of which sqube's own go.sum lacks some.
func TestKubernetesResolves(t *testing.T) {
	b, err := newBinaries(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	modfile, err := b.modfile(apiserverProgram)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-mod=mod", "-modfile", modfile, "-deps", apiserverProgram.pkg, managerProgram.pkg, schedulerProgram.pkg)
	cmd.Dir = b.root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
