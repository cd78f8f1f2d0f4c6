package serve

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness"
)

// charted is what Helm applies on the server's side. Its argument is a number of replicas.
const charted = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {chart: web}}
spec:
  replicas: %d
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web, ports: [{containerPort: 80}], args: [a]}]}}
`

// managers changes what Helm has applied, and deletes it: after an undo, the fields have the managers that they had, and Helm goes on.
func (f *undone) managers(t *testing.T) {
	hana, c := f.administrator(t, "hana")
	mallory := f.as(t, "mallory", "system:masters")
	makeNamespace(t, c, "chart")
	helm := func(replicas int) {
		t.Helper()
		out, err := kubectl(t, hana, fmt.Sprintf(charted, replicas), "apply", "-n", "chart", "--server-side", "--field-manager=helm", "-f", "-")
		if err != nil {
			t.Errorf("Helm can't apply %d replicas: %v: %s", replicas, err, out)
		}
	}
	helm(2)
	kubectlPrints(t, hana, "set", "env", "-n", "chart", "deploy/web", "PLACE=here", "--field-manager=hana")
	before := f.managersOf(t)

	kubectlPrints(t, mallory, "scale", "-n", "chart", "deploy/web", "--replicas=5")
	kubectlPrints(t, hana, "annotate", "-n", "chart", "deploy/web", "note=mine", "--field-manager=hana-notes")
	kubectlPrints(t, mallory, "set", "image", "-n", "chart", "deploy/web", "web=worse")
	kubectlPrints(t, mallory, "label", "-n", "chart", "deploy/web", "chart-", "more=worse")
	if changed := f.managersOf(t); changed["helm Apply "] == before["helm Apply "] {
		t.Fatalf("Helm still has all of its fields: %v", changed)
	}
	undo(t, hana, "--user", "mallory", "-n", "chart", "--apply")
	after := f.managersOf(t)
	delete(after, "hana-notes Update ")
	f.sameManagers(t, after, before)
	helm(3)

	before = f.managersOf(t)
	kubectlPrints(t, mallory, "scale", "-n", "chart", "deploy/web", "--replicas=5")
	kubectlPrints(t, mallory, "delete", "-n", "chart", "deploy/web")
	undo(t, hana, "--user", "mallory", "-n", "chart", "--apply")
	f.sameManagers(t, f.managersOf(t), before)
	helm(4)
}

// managersOf returns the managers of the fields that are no status, each with its fields.
func (f *undone) managersOf(t *testing.T) map[string]string {
	t.Helper()
	web, err := client(t, f.kubeconfig).AppsV1().Deployments("chart").Get(t.Context(), "web", metav1.GetOptions{})
	harness.Must(t, err)
	all := map[string]string{}
	for _, m := range web.ManagedFields {
		var fields map[string]any
		harness.Must(t, json.Unmarshal(m.FieldsV1.GetRawBytes(), &fields))
		text, err := json.Marshal(fields)
		harness.Must(t, err)
		if m.Subresource != "status" {
			all[strings.Join([]string{m.Manager, string(m.Operation), m.Subresource}, " ")] = string(text)
		}
	}
	return all
}

func (f *undone) sameManagers(t *testing.T, got, want map[string]string) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("the managers are %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		for who := range want {
			t.Logf("%s has\n%s, want\n%s", who, got[who], want[who])
		}
	}
}
