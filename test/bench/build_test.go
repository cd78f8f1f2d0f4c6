package main

import (
	"os/exec"
	"testing"
)

// TestKubernetesResolves checks that all packages of Kubernetes' programs resolve. sqube's own go.sum lacks some of them.
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
