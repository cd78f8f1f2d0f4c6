package sqube

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Result is what a command has printed, and its exit code.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Kubectl runs kubectl as the administrator of a cluster. It keeps what kubectl caches to itself.
type Kubectl struct {
	binary     string
	kubeconfig string
	home       string
}

// NewKubectl returns a kubectl for the cluster that the kubeconfig names.
func NewKubectl(t testing.TB, kubeconfig string) *Kubectl {
	t.Helper()
	return &Kubectl{binary: KubectlBinary(t), kubeconfig: kubeconfig, home: t.TempDir()}
}

// Env returns the environment in which `kubectl`, with nothing else said, is this one.
func (k *Kubectl) Env() []string {
	return append(os.Environ(),
		"KUBECONFIG="+k.kubeconfig,
		"HOME="+k.home,
		"KUBECACHEDIR="+filepath.Join(k.home, "cache"),
		"PATH="+filepath.Dir(k.binary)+":"+os.Getenv("PATH"),
		"LC_ALL=C.UTF-8", "TZ=UTC0", "PAGER=cat",
	)
}

// Run runs kubectl with the input and the arguments. It fails the test only when kubectl cannot be run: what a command
// that was refused prints and answers is for the test to judge.
func (k *Kubectl) Run(t testing.TB, stdin string, args ...string) Result {
	t.Helper()
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), k.binary, args...)
	cmd.Env = k.Env()
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}
