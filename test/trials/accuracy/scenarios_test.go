package accuracy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/server/trial"
)

// scenario is a change, and what it is made on. Its objects are those in the namespace of its name, and those without a namespace whose names
// begin with its name.
type scenario struct {
	name  string
	shows string // what is tried, for the table
	nodes []simnodes.Options
	setup string   // a manifest
	more  string   // another, of kinds that the first defines
	after []string // arguments of kubectl, once nothing changes any more
	// The change: a manifest, the arguments of kubectl, which can fail, a script, or what flags of sqube try say, and make does to the cluster.
	manifest string
	kubectl  []string
	script   string // for sh
	flags    []string
	make     func(*cluster)
	verdict  trial.Verdict
	fight    string // the path of a field that the trial must say is not left alone
	// quick scenarios are played in every test.
	quick bool
	// lasts is how long the cluster goes on changing, if its controllers wait.
	lasts time.Duration
}

// all is the scenarios, grouped by subject.
var all = slices.Concat(rollouts, nodes, jobs, deletions, policies)

// two are a scenario's nodes, unless it has others: NAME-a and NAME-b, with one CPU each.
func two(name string) []simnodes.Options {
	return []simnodes.Options{{Names: []string{name + "-a", name + "-b"}}}
}

// one is the node of a scenario in which it would be chance which of two equal nodes a Pod gets.
func one(name string) []simnodes.Options { return []simnodes.Options{{Names: []string{name + "-a"}}} }

// placed is what Pods of a scenario need in their spec to run on its nodes, and only there.
func placed(scenario string, tolerations ...string) string {
	all := strings.Join(append([]string{"{key: scenario, operator: Exists}"}, tolerations...), ", ")
	return fmt.Sprintf("terminationGracePeriodSeconds: 1, nodeSelector: {scenario: %s}, tolerations: [%s]", scenario, all)
}

// workload is a Deployment or a StatefulSet with Pods that run on the scenario's nodes.
type workload struct {
	scenario, name, image, cpu string
	replicas                   int
	spec, pod, container       string // more fields
	tolerations, labels        string
}

func (w workload) deployment() string { return w.manifest("Deployment") }

func (w workload) manifest(kind string) string {
	container := fmt.Sprintf("name: main, image: %q, resources: {requests: {cpu: %s}}", w.image, w.cpu)
	return fmt.Sprintf(`
---
apiVersion: apps/v1
kind: %s
metadata: {name: %[2]s, namespace: %[3]s}
spec:
  replicas: %[4]d
  selector: {matchLabels: {app: %[2]s}}
  %[5]s
  template:
    metadata: {labels: {app: %[2]s%[8]s}}
    spec: {%[6]s, containers: [{%[7]s}]}
`, kind, w.name, w.scenario, w.replicas, w.spec, joined(placed(w.scenario, slices.DeleteFunc([]string{w.tolerations}, func(s string) bool { return s == "" })...), w.pod), joined(container, w.container), w.labels)
}

// joined joins fields of a flow mapping.
func joined(fields ...string) string {
	return strings.Join(slices.DeleteFunc(fields, func(s string) bool { return s == "" }), ", ")
}

// namespace is a scenario's namespace, with labels.
func namespace(name, labels string) string {
	return fmt.Sprintf("\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s}}}\n", name, labels)
}
