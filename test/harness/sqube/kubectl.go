package sqube

import (
	"os"
	"path/filepath"
	"testing"
)

// KubectlEnv returns the environment in which `kubectl`, with nothing else said, is the pinned one, talks to the cluster
// that the kubeconfig names, and keeps what it caches to the test.
func KubectlEnv(t testing.TB, kubeconfig string) []string {
	t.Helper()
	home := t.TempDir()
	return append(os.Environ(),
		"KUBECONFIG="+kubeconfig,
		"HOME="+home,
		"KUBECACHEDIR="+filepath.Join(home, "cache"),
		"PATH="+filepath.Dir(KubectlBinary(t))+":"+os.Getenv("PATH"),
		"LC_ALL=C.UTF-8", "TZ=UTC0", "PAGER=cat",
	)
}
