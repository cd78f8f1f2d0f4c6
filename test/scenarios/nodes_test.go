package scenarios

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness/fakenode"
)

var nodes = []scenario{
	{"drain", "PodDisruptionBudget: a drain that it blocks, and one that it allows; uncordon", drain},
	{"preemption", "PriorityClass: a Pod preempts one with a lower priority, which stays pending", preemption},
	{"silent-node", "Node: it stops reporting, taints, eviction, Pods start elsewhere; it returns and removes its Pods", silentNode},
	{"topology-spread", "Scheduler: topology spread over zones, and a Pod that would violate it", topologySpread},
}

// joinOwn joins nodes on which only Pods of this scenario run: those with placed in their spec.
func (u *user) joinOwn(options ...simnodes.Options) []*simnodes.Nodes {
	u.Helper()
	var nodes []*simnodes.Nodes
	for _, o := range options {
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels["scenario"] = u.namespace
		o.Taints = append(o.Taints, corev1.Taint{Key: "scenario", Value: u.namespace, Effect: corev1.TaintEffectNoSchedule})
		nodes = append(nodes, fakenode.Join(u.T, u.config, o))
	}
	return nodes
}

// placed returns the manifest of a Deployment whose Pods run on the nodes of this scenario; pod are additional lines of their
// spec.
func (u *user) placed(name string, replicas int, cpu string, pod ...string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {scenario: %[3]s}
      containers: [{name: main, image: "%[1]s:1", resources: {requests: {cpu: %[4]s}}}]
      tolerations:
      - {key: scenario, operator: Exists}
      %[5]s
`, name, replicas, u.namespace, cpu, strings.Join(pod, "\n      "))
}

// on waits until each node runs its number of Pods, without those that are terminating.
func (u *user) on(selector string, counts map[string]int) {
	u.Helper()
	u.until(fmt.Sprintf("Pods %s run on %v", selector, counts), func() (string, bool) {
		pods := u.pods(selector)
		on := map[string]int{}
		for i := range pods {
			if pods[i].DeletionTimestamp == nil && pods[i].Status.Phase == corev1.PodRunning {
				on[pods[i].Spec.NodeName]++
			}
		}
		return show(pods), fmt.Sprint(on) == fmt.Sprint(counts)
	})
}

// pending waits until a Pod can't be scheduled for a reason.
func (u *user) pending(selector, reason string) {
	u.Helper()
	u.until("a Pod "+selector+" waits: "+reason, func() (string, bool) {
		pods := u.pods(selector)
		for i := range pods {
			for _, condition := range pods[i].Status.Conditions {
				if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable && strings.Contains(condition.Message, reason) {
					return "", true
				}
			}
		}
		return show(pods), false
	})
}

func drain(u *user) {
	u.joinOwn(simnodes.Options{Names: []string{"drain-a"}}, simnodes.Options{Names: []string{"drain-b"}})
	u.run("cordon", "drain-b")
	u.apply(u.placed("web", 2, "100m") + `---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {minAvailable: 2, selector: {matchLabels: {app: web}}}
`)
	u.on("app=web", map[string]int{"drain-a": 2})
	u.run("uncordon", "drain-b")
	u.run("wait", "pdb/web", "--for=jsonpath={.status.currentHealthy}=2", "--timeout=60s")
	u.until("the budget blocks the drain", func() (string, bool) { // on a busy machine, the time may end before the first eviction
		out, err := u.try("", "drain", "drain-a", "--timeout=2s")
		if err == nil {
			u.Fatalf("it was drained despite the budget: %s", out)
		}
		return out, strings.Contains(out, "cordoned") && strings.Contains(out, "would violate the pod's disruption budget")
	})
	u.on("app=web", map[string]int{"drain-a": 2})

	u.run("patch", "pdb", "web", "--type=merge", "-p", `{"spec":{"minAvailable":1}}`)
	u.run("wait", "pdb/web", "--for=jsonpath={.status.disruptionsAllowed}=1", "--timeout=60s")
	u.contains(u.run("drain", "drain-a", "--timeout=60s"), "drained")
	u.on("app=web", map[string]int{"drain-b": 2})
	u.contains(u.run("get", "node", "drain-a"), "SchedulingDisabled")
	u.run("uncordon", "drain-a")
	u.run("scale", "deployment/web", "--replicas=12")
	u.until("Pods run on it again", func() (string, bool) {
		pods := u.pods("app=web")
		for i := range pods {
			if pods[i].Spec.NodeName == "drain-a" {
				return "", true
			}
		}
		return show(pods), false
	})
}

func preemption(u *user) {
	u.joinOwn(simnodes.Options{Names: []string{"preemption-a"}})
	u.apply(`
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: scenario-high}
value: 1000
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: scenario-low}
value: 1
`)
	u.apply(u.placed("low", 1, "800m", "priorityClassName: scenario-low"))
	u.on("app=low", map[string]int{"preemption-a": 1})
	u.apply(u.placed("high", 1, "800m", "priorityClassName: scenario-high"))
	u.on("app=high", map[string]int{"preemption-a": 1})
	u.pending("app=low", "Insufficient cpu")
	u.event("Preempted", "low")
	u.run("delete", "deployment", "high")
	u.on("app=low", map[string]int{"preemption-a": 1})
}

func silentNode(u *user) {
	nodes := u.joinOwn(simnodes.Options{Names: []string{"silent-a"}}, simnodes.Options{Names: []string{"silent-b"}})
	u.run("cordon", "silent-b")
	u.apply(u.placed("web", 2, "100m",
		"- {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}",
		"- {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}"))
	u.on("app=web", map[string]int{"silent-a": 2})
	u.run("uncordon", "silent-b")

	nodes[0].Silence("silent-a")
	u.run("wait", "node/silent-a", "--for=condition=Ready=Unknown", "--timeout=60s")
	u.on("app=web", map[string]int{"silent-b": 2})
	u.contains(u.run("get", "node", "silent-a", "-o", "jsonpath={.spec.taints}"), corev1.TaintNodeUnreachable)
	u.contains(u.run("describe", "node", "silent-a"), "NodeStatusUnknown")
	u.event("TaintManagerEviction", "web")
	// Whether the old Pods still run is unknown, so they stay until the node reports.
	u.contains(u.run("get", "pods", "--field-selector=spec.nodeName=silent-a"), "Terminating")

	nodes[0].Return("silent-a")
	u.run("wait", "node/silent-a", "--for=condition=Ready", "--timeout=60s")
	u.until("the node has no unreachable taint and no old Pods", func() (string, bool) {
		node, err := u.CoreV1().Nodes().Get(u.Context(), "silent-a", metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		pods := u.pods("app=web")
		return fmt.Sprint(node.Spec.Taints, show(pods)), len(node.Spec.Taints) == 1 && len(pods) == 2
	})
}

func topologySpread(u *user) {
	u.joinOwn(
		simnodes.Options{Names: []string{"spread-a"}, Labels: map[string]string{"zone": "a"}},
		simnodes.Options{Names: []string{"spread-b"}, Labels: map[string]string{"zone": "b"}},
		simnodes.Options{Names: []string{"spread-c"}, Labels: map[string]string{"zone": "c"}},
	)
	u.apply(u.placed("web", 6, "10m", "topologySpreadConstraints:",
		"- {maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}"))
	u.on("app=web", map[string]int{"spread-a": 2, "spread-b": 2, "spread-c": 2})
	u.run("cordon", "spread-c")
	u.run("scale", "deployment/web", "--replicas=9")
	u.on("app=web", map[string]int{"spread-a": 3, "spread-b": 3, "spread-c": 2})
	u.pending("app=web", "didn't match pod topology spread constraints")
	u.run("uncordon", "spread-c")
	u.on("app=web", map[string]int{"spread-a": 3, "spread-b": 3, "spread-c": 3})
}
