package sqube

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// BinaryVariable is the environment variable with the sqube to test.
const BinaryVariable = "SQUBE_BIN"

// Variable returns the environment variable with another program, such as SQUBE_HELM.
func Variable(program string) string { return "SQUBE_" + strings.ToUpper(program) }

// Binary returns the path of the sqube to test: SQUBE_BIN, or else bin/sqube, which the first caller builds. It fails the test
// if the build fails.
func Binary(t testing.TB) string {
	t.Helper()
	return binary(t, BinaryVariable, "build", "sqube")
}

// KubectlBinary returns the path of the kubectl to test with, as Program does.
func KubectlBinary(t testing.TB) string {
	t.Helper()
	return Program(t, "kubectl")
}

// Program returns the path of a program to test with, such as helm: SQUBE_HELM, or else bin/helm, which the first caller builds.
// It fails the test if the build fails.
func Program(t testing.TB, name string) string {
	t.Helper()
	return binary(t, Variable(name), name, name)
}

// builds has a function for each program, by name, that builds it once.
var builds sync.Map

func binary(t testing.TB, variable, target, name string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	built, _ := builds.LoadOrStore(name, sync.OnceValues(func() (string, error) { return build(target, name) }))
	path, err := built.(func() (string, error))()
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
