package sqube

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/sqube/sqube/test/harness"
)

// recordControllers is an audit policy for the requests of the controllers and the scheduler.
const recordControllers = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata, userGroups: ["system:serviceaccounts:kube-system"]}
- {level: Metadata, users: ["system:kube-controller-manager", "system:kube-scheduler"]}
- {level: None}
`

// RightsSuffice returns flags of a server. The test fails at its end if its authorizer has refused a request of a controller or of the
// scheduler, or if these have sent none.
func RightsSuffice(t testing.TB) []string {
	t.Helper()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	harness.Must(t, os.WriteFile(policy, []byte(recordControllers), 0o600))
	t.Cleanup(func() {
		recorded, err := os.ReadFile(log)
		if err != nil || len(recorded) == 0 {
			t.Errorf("controllers and scheduler have sent no requests as themselves (%v)", err)
		}
		for line := range bytes.Lines(recorded) {
			if bytes.Contains(line, []byte(`"authorization.k8s.io/decision":"forbid"`)) {
				t.Errorf("a right is missing: %s", line)
			}
		}
	})
	return []string{"--audit-policy-file", policy, "--audit-log-path", log, "--audit-log-maxsize=1000"}
}
