package harness

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Module returns the directory of a published Go module, such as "sigs.k8s.io/gateway-api@v1.6.3", in the module cache, and
// downloads it if necessary. sum is that of its content, as in a go.sum.
func Module(t testing.TB, module, sum string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir() // outside of any module, so that none changes
	cmd.Env = append(os.Environ(), "GOWORK=off")
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("go mod download %s: %v\n%s", module, err, output)
	}
	var found struct{ Dir, Sum string }
	Must(t, json.Unmarshal(output, &found))
	if found.Sum != sum {
		t.Fatalf("the sum of %s is %s", module, found.Sum)
	}
	return found.Dir
}

// KubernetesVersion returns the version of Kubernetes in go.mod, such as v1.37.2, which the server and kubectl report as theirs.
func KubernetesVersion(t testing.TB) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.TrimSpace(string(output))
}
