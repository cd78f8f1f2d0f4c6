package sqube

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// Environment variables with binaries to use instead of building them.
const (
	BinaryVariable   = "SQUBE_BIN"
	KubectlVariable  = "SQUBE_KUBECTL"
	HelmVariable     = "SQUBE_HELM"
	PromtoolVariable = "SQUBE_PROMTOOL"
	NFPMVariable     = "SQUBE_NFPM"
)

// Binary returns the path of the sqube to test: SQUBE_BIN, or else bin/sqube, which the first caller builds. It fails the test
// if the build fails.
func Binary(t testing.TB) string {
	t.Helper()
	return binary(t, BinaryVariable, builtSqube)
}

// KubectlBinary returns the path of the kubectl to test with: SQUBE_KUBECTL, or else bin/kubectl, which the first caller
// builds. It fails the test if the build fails.
func KubectlBinary(t testing.TB) string {
	t.Helper()
	return binary(t, KubectlVariable, builtKubectl)
}

// HelmBinary is KubectlBinary for helm: SQUBE_HELM or bin/helm.
func HelmBinary(t testing.TB) string {
	t.Helper()
	return binary(t, HelmVariable, builtHelm)
}

// PromtoolBinary is KubectlBinary for promtool: SQUBE_PROMTOOL or bin/promtool.
func PromtoolBinary(t testing.TB) string {
	t.Helper()
	return binary(t, PromtoolVariable, builtPromtool)
}

// NFPMBinary is KubectlBinary for nfpm: SQUBE_NFPM or bin/nfpm.
func NFPMBinary(t testing.TB) string {
	t.Helper()
	return binary(t, NFPMVariable, builtNFPM)
}

var (
	builtSqube    = sync.OnceValues(func() (string, error) { return build("build", "sqube") })
	builtKubectl  = sync.OnceValues(func() (string, error) { return build("kubectl", "kubectl") })
	builtHelm     = sync.OnceValues(func() (string, error) { return build("helm", "helm") })
	builtNFPM     = sync.OnceValues(func() (string, error) { return build("nfpm", "nfpm") })
	builtPromtool = sync.OnceValues(func() (string, error) { return build("promtool", "promtool") })
)

func binary(t testing.TB, variable string, built func() (string, error)) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	path, err := built()
	if err != nil {
		t.Fatalf("no binary to test: %v", err)
	}
	return path
}

// build makes a target of the Makefile, and returns the path of the binary in bin. The lock makes the test processes of one `go
// test` take turns.
func build(target, name string) (string, error) {
	root, err := harness.Repository()
	if err != nil {
		return "", err
	}
	bin := filepath.Join(root, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(bin, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close() // also releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("waiting for another build: %w", err)
	}
	cmd := exec.Command("make", target)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make %s: %w\n%s", target, err, out)
	}
	return filepath.Join(bin, name), nil
}
