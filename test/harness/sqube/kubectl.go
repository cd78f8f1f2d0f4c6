package sqube

import (
	"os"
	"path/filepath"
	"testing"
)

// KubectlEnv returns the environment in which `kubectl` is the pinned one, uses the cluster in the kubeconfig, and has a cache
// only for the test.
func KubectlEnv(t testing.TB, kubeconfig string) []string {
	t.Helper()
	home := t.TempDir()
	return append(os.Environ(),
		"KUBECONFIG="+kubeconfig,
		"HOME="+home,
		"KUBECACHEDIR="+filepath.Join(home, "cache"),
		"PATH="+filepath.Dir(KubectlBinary(t))+":"+os.Getenv("PATH"),
		"LC_ALL=C.UTF-8", "TZ=UTC0", "PAGER=cat",
		"GOGC=off", "GOMEMLIMIT=512MiB", // it ends before it needs to collect garbage, which takes a third of its time
	)
}
