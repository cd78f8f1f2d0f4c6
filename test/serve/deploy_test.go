package serve

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/sqube/sqube/test/harness/sqube"
)

// TestManifests applies the manifests in deploy. The namespace warns of Pods that are not restricted.
func TestManifests(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	kubectl := exec.Command(sqube.KubectlBinary(t), "apply", "--validate=strict", "-f", "../../deploy/kubernetes.yaml")
	kubectl.Env = sqube.KubectlEnv(t, s.kubeconfig())
	out, err := kubectl.CombinedOutput()
	if err != nil || strings.Contains(string(out), "Warning") || strings.Count(string(out), " created\n") != 5 {
		t.Errorf("%v\n%s", err, out)
	}
}
