package admission

import (
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// privileged returns objects with a privileged container, by their path.
func privileged(c *kit.Cluster) map[string][]map[string]any {
	const container = `{name: c, image: i, securityContext: {privileged: true}}`
	template := `{selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {hostNetwork: true, containers: [` + container + `]}}}`
	return map[string][]map[string]any{
		c.Path("v1", "pods"): {
			kit.Manifest(`{metadata: {generateName: p-}, spec: {containers: [%s]}}`, container),
			kit.Manifest(`{metadata: {generateName: p-}, spec: {containers: [{name: d, image: i}], initContainers: [%s]}}`, container),
		},
		c.Path("apps/v1", "daemonsets"):   {kit.Manifest(`{metadata: {generateName: d-}, spec: %s}`, template)},
		c.Path("apps/v1", "deployments"):  {kit.Manifest(`{metadata: {generateName: d-}, spec: %s}`, template)},
		c.Path("apps/v1", "statefulsets"): {kit.Manifest(`{metadata: {generateName: s-}, spec: %s}`, template)},
		c.Path("batch/v1", "jobs"): {kit.Manifest(`{metadata: {generateName: j-}, spec: {template: {spec: {restartPolicy: Never, containers: [%s]}}}}`,
			container)},
	}
}

// debugger adds a privileged container to a running Pod.
const debugger = `{"spec":{"ephemeralContainers":[{"name":"e","image":"i","securityContext":{"privileged":true}}]}}`

var privilegedPods = kit.Promise{Statement: "a Pod may be privileged, like those of CNI plugins, kube-proxy and CSI drivers", Proof: func(t *testing.T, c *kit.Cluster) {
	c.MakeDefaultServiceAccount(t)
	for path, objects := range privileged(c) {
		for _, object := range objects {
			c.Post(t, path, object).Created(t)
		}
	}
	c.Post(t, c.Path("v1", "pods"), kit.Pod("debugged")).Created(t)
	c.Patch(t, kit.StrategicPatch, c.Path("v1", "pods", "debugged", "ephemeralcontainers"), debugger).OK(t)
}}

// TestPrivilegedForbidden uses kube-apiserver's flag --allow-privileged.
func TestPrivilegedForbidden(t *testing.T) {
	kit.Prove(t, []string{"--allow-privileged=false"}, kit.Promise{Statement: "--allow-privileged=false rejects privileged containers", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		for path, objects := range privileged(c) {
			for _, object := range objects {
				c.Post(t, path, object).Invalid(t,
					"securityContext.privileged: Forbidden: disallowed by cluster policy")
			}
		}
		c.Post(t, c.Path("v1", "pods"), kit.Pod("plain")).Created(t)
		c.Patch(t, kit.StrategicPatch, c.Path("v1", "pods", "plain", "ephemeralcontainers"), debugger).Invalid(t, "disallowed by cluster policy")
	}})
}
