package accuracy

import (
	"fmt"
	"time"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/server/trial"
)

var nodes = []scenario{
	{
		name: "preemption", shows: "a Pod of a higher priority that preempts another",
		quick: true,
		nodes: []simnodes.Options{{Names: []string{"preemption-a"}}},
		setup: `
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: preemption-high}, value: 1000}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: preemption-low}, value: 1}
` + workload{scenario: "preemption", name: "low", image: "low:1", cpu: "800m", replicas: 1, pod: "priorityClassName: preemption-low"}.deployment(),
		manifest: workload{scenario: "preemption", name: "high", image: "high:1", cpu: "800m", replicas: 1, pod: "priorityClassName: preemption-high"}.deployment(),
		verdict:  trial.NotAtRest,
	},
	{
		name: "spread", shows: "topology spread over zones, one of which is cordoned",
		nodes: []simnodes.Options{
			{Names: []string{"spread-a"}, Labels: map[string]string{"zone": "a"}},
			{Names: []string{"spread-b"}, Labels: map[string]string{"zone": "b"}},
			{Names: []string{"spread-c"}, Labels: map[string]string{"zone": "c"}},
		},
		setup:   spread.deployment(),
		kubectl: []string{"scale", "--namespace=spread", "deployment/web", "--replicas=9"},
		after:   []string{"cordon", "spread-c"},
		verdict: trial.NotAtRest,
	},
	{
		name: "drain", shows: "a drain that a disruption budget lets through, Pod by Pod",
		setup:   workload{scenario: "drain", name: "web", image: "web:1", cpu: "100m", replicas: 4}.deployment() + budget("drain", 3),
		kubectl: []string{"drain", "drain-a"},
		verdict: trial.AtRest,
	},
	{
		name: "blocked", shows: "a drain that a disruption budget blocks",
		quick:   true,
		setup:   workload{scenario: "blocked", name: "web", image: "web:1", cpu: "100m", replicas: 4}.deployment() + budget("blocked", 4),
		kubectl: []string{"drain", "blocked-a", "--timeout=3s"},
		verdict: trial.NotAtRest,
	},
	{
		name: "taint", shows: "a taint that evicts those that do not tolerate it",
		setup:   workload{scenario: "taint", name: "web", image: "web:1", cpu: "100m", replicas: 4}.deployment(),
		kubectl: []string{"taint", "node", "taint-a", "maintenance=yes:NoExecute"},
		verdict: trial.AtRest,
	},
	{
		name: "removed", shows: "a node that is deleted, with its Pods",
		setup:   workload{scenario: "removed", name: "web", image: "web:1", cpu: "100m", replicas: 4}.deployment(),
		kubectl: []string{"delete", "node", "removed-a"},
		verdict: trial.AtRest,
		lasts:   90 * time.Second, // Pods without a node are deleted after 40 s, by a controller that looks every 20 s
	},
	{
		name: "lost", shows: "a node that is lost, from which Pods are evicted",
		setup:   workload{scenario: "lost", name: "web", image: "web:1", cpu: "100m", replicas: 4, tolerations: unreachable}.deployment(),
		flags:   []string{"--lose", "node/lost-a"},
		make:    func(c *cluster) { c.silence("lost-a") },
		verdict: trial.NotAtRest, // its Pods stay, since nobody knows whether they run
		lasts:   80 * time.Second,
	},
}

// unreachable lets Pods stay on a node that is lost for seconds, where five minutes are the default.
const unreachable = "{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 5}"

var spread = workload{scenario: "spread", name: "web", image: "web:1", cpu: "10m", replicas: 6,
	pod: "topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]"}

// budget is a PodDisruptionBudget of the workload web.
func budget(scenario string, available int) string {
	return fmt.Sprintf(`
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: %s}
spec: {minAvailable: %d, selector: {matchLabels: {app: web}}}
`, scenario, available)
}
