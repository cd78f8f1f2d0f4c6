package trials

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sqube/sqube/server/trial"
	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

// resultsSetup is what changes of TestResults are made on: %s is a workload of three Pods.
const resultsSetup = `
{apiVersion: v1, kind: Namespace, metadata: {name: full}}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: few, namespace: full}, spec: {hard: {pods: "3"}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: doomed}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: doomed, finalizers: [example.com/held]}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: shop}, spec: {minAvailable: 3, selector: {matchLabels: {app: web}}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick, namespace: shop}
spec:
  schedule: "0 * * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: tick, image: "tick:1"}]}}}}
---
%s`

func workload(namespace, name, cpu string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  replicas: %[4]d
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec: {containers: [{name: web, image: "web:1", resources: {requests: {cpu: %[3]s}}}]}
---`, namespace, name, cpu, replicas)
}

// TestResults tries changes whose results are of all kinds, on one copy.
func TestResults(t *testing.T) {
	t.Parallel()
	c := newCluster(t, harness.Engine{})
	c.kubectl(t, "apply", "-f", write(t, fmt.Sprintf(resultsSetup, workload("shop", "web", "100m", 3))))
	c.kubectl(t, "rollout", "status", "-n", "shop", "deployment/web")
	node := c.kubectl(t, "get", "pods", "-n", "shop", "-l", "app=web", "-o", "jsonpath={.items[0].spec.nodeName}")
	file := filepath.Join(t.TempDir(), "copy.db")
	c.program(t, sqube.Binary(t), "copy", file)
	for name, tries := range map[string]func(*testing.T, string){
		"nothing": resultOfNothing, "rollouts": resultOfRollouts, "policy": resultOfPolicy, "fight": resultOfFight,
		"held": func(t *testing.T, file string) { resultOfHeld(t, file, node) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries(t, file)
		})
	}
}

// What the copy does by itself, such as its CronJobs, is no result of a change.
func resultOfNothing(t *testing.T, file string) {
	stdout, stderr, code := sqube.Run(t, []string{"try", "--from", file, "--for", "2h", "-o", "markdown", "get", "nodes"}, inFolder(t, t.TempDir()))
	if code != 0 || !strings.Contains(stdout, "### sqube try: At rest") || !strings.Contains(stdout, "nothing was changed") {
		t.Errorf("the exit code is %d: %s%s", code, stdout, stderr)
	}
}

// A rollout is told to its end; what does not fit on the nodes or in a quota, with the reason.
func resultOfRollouts(t *testing.T, file string) {
	r := try(t, "--from", file, "-f", write(t, workload("shop", "fits", "100m", 2)+workload("shop", "large", "64", 1)+workload("full", "many", "100m", 5)))
	r.ends(t, trial.NotAtRest)
	for name, want := range map[string]string{"fits": "2 of 2 ready", "large": "0 of 1 ready", "many": "3 of 5 "} {
		o := find(r.Tree, "Deployment", name)
		if o == nil || o.Operation != trial.Created || !strings.HasPrefix(o.State, want) || find(o.Caused, "Pod", name) == nil {
			t.Errorf("%s is %+v, want it created, %s, with Pods below it", name, o, want)
		}
	}
	if !slices.ContainsFunc(r.Timeline, func(m trial.Moment) bool { return m.Object.Name == "fits" && m.Text == "2 of 2 ready" }) {
		t.Errorf("the time line does not end the rollout: %v", r.Timeline)
	}
	if len(r.Pending) != 1 || !strings.HasPrefix(r.Pending[0].Pod.Name, "large-") || !strings.Contains(r.Pending[0].Reason, "Insufficient cpu") {
		t.Errorf("pending are %+v", r.Pending)
	}
	if !slices.ContainsFunc(r.Held, func(h trial.Hold) bool { return h.Kind == "quota" && h.By == "few" && h.Object.Namespace == "full" }) {
		t.Errorf("held are %+v", r.Held)
	}
}

// A policy has below it what it will refuse of what the cluster does by itself.
func resultOfPolicy(t *testing.T, file string) {
	r := try(t, "--from", file, "--for", "12h", "-f", write(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: owners}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [batch], apiVersions: [v1], operations: [CREATE], resources: [jobs]}]}
  validations: [{expression: "'owner' in object.metadata.?labels.orValue({})", message: every Job needs the label owner}]
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: owners}, spec: {policyName: owners, validationActions: [Deny]}}
`))
	r.ends(t, trial.NotAtRest)
	policy := find(r.Tree, "ValidatingAdmissionPolicy", "owners")
	if policy == nil {
		t.Fatalf("the policy is not in the tree: %+v", r.Tree)
	}
	if o := find(policy.Caused, "Job", "tick-"); o == nil || o.Operation != trial.NotCreated || o.Alike < 5 {
		t.Errorf("below the policy there is %+v, want the Jobs that are not created", o)
	}
	if len(r.Held) == 0 || r.Held[0].Kind != "policy" || r.Held[0].By != "owners" || r.Held[0].Object.Name != "tick" {
		t.Errorf("held are %+v", r.Held)
	}
}

// A budget holds up a drain, and a finalizer a namespace.
func resultOfHeld(t *testing.T, file, node string) {
	r := try(t, "--from", file, "--", "sh", "-c", "kubectl delete namespace doomed --wait=false && kubectl drain "+node+" --timeout=5s")
	r.ends(t, trial.NotAtRest)
	if !slices.ContainsFunc(r.Held, func(h trial.Hold) bool {
		return h.Kind == "budget" && h.By == "web" && strings.HasPrefix(h.Object.Name, "web-")
	}) {
		t.Errorf("held are %+v", r.Held)
	}
	if o := find(r.Tree, "Node", node); o == nil || o.State != "cordoned" {
		t.Errorf("the node is %+v", o)
	}
	o := find(r.Tree, "Namespace", "doomed")
	if o == nil || !strings.HasPrefix(o.State, "Terminating: ") || find(o.Caused, "ConfigMap", "held") == nil {
		t.Errorf("the namespace is %+v", o)
	}
	for _, what := range []string{"budget web", "Namespace doomed: Terminating"} {
		if !slices.ContainsFunc(r.Reasons, func(reason string) bool { return strings.Contains(reason, what) }) {
			t.Errorf("no reason names %s: %q", what, r.Reasons)
		}
	}
}

// Two that do not agree on a field are told.
func resultOfFight(t *testing.T, file string) {
	r := try(t, "--from", file, "--", "sh", "-c", "for i in 1 2 3 4 5; do kubectl scale -n shop replicaset -l app=web --replicas=4; sleep 0.3; done")
	r.ends(t, trial.NotAtRest)
	if len(r.Fights) != 1 || r.Fights[0].Path != ".spec.replicas" || !slices.Equal(slices.Sorted(slices.Values(r.Fights[0].By)), []string{"deployment-controller", "kubernetes-admin"}) {
		t.Errorf("the fights are %+v", r.Fights)
	}
}

// find returns the first object of a kind in trees whose name begins so.
func find(all []*trial.Object, kind, name string) *trial.Object {
	for _, o := range all {
		if o.Kind == kind && strings.HasPrefix(o.Name, name) {
			return o
		}
		if found := find(o.Caused, kind, name); found != nil {
			return found
		}
	}
	return nil
}
