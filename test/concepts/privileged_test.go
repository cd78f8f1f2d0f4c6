package concepts

import (
	"net/http"
	"testing"
)

// privileged are objects with a privileged container, by their path.
func privileged(c *cluster) map[string][]map[string]any {
	const container = `{name: c, image: i, securityContext: {privileged: true}}`
	template := `{selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {hostNetwork: true, containers: [` + container + `]}}}`
	return map[string][]map[string]any{
		c.path("v1", "pods"): {
			manifest(`{metadata: {generateName: p-}, spec: {containers: [%s]}}`, container),
			manifest(`{metadata: {generateName: p-}, spec: {containers: [{name: d, image: i}], initContainers: [%s]}}`, container),
		},
		c.path("apps/v1", "daemonsets"):   {manifest(`{metadata: {generateName: d-}, spec: %s}`, template)},
		c.path("apps/v1", "deployments"):  {manifest(`{metadata: {generateName: d-}, spec: %s}`, template)},
		c.path("apps/v1", "statefulsets"): {manifest(`{metadata: {generateName: s-}, spec: %s}`, template)},
		c.path("batch/v1", "jobs"): {manifest(`{metadata: {generateName: j-}, spec: {template: {spec: {restartPolicy: Never, containers: [%s]}}}}`,
			container)},
	}
}

// debugger adds a privileged container to a Pod that runs.
const debugger = `{"spec":{"ephemeralContainers":[{"name":"e","image":"i","securityContext":{"privileged":true}}]}}`

var privilegedPods = promise{"a Pod may be privileged, as those of CNI plugins, kube-proxy and CSI drivers are", func(t *testing.T, c *cluster) {
	c.serviceAccount(t)
	for path, objects := range privileged(c) {
		for _, object := range objects {
			c.post(t, path, object).want(t, http.StatusCreated)
		}
	}
	c.post(t, c.path("v1", "pods"), pod("debugged")).want(t, http.StatusCreated)
	c.patch(t, strategicPatch, c.path("v1", "pods", "debugged", "ephemeralcontainers"), debugger).want(t, http.StatusOK)
}}

// TestPrivilegedForbidden uses kube-apiserver's flag --allow-privileged.
func TestPrivilegedForbidden(t *testing.T) {
	prove(t, []string{"--allow-privileged=false"}, promise{"--allow-privileged=false refuses privileged containers", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		for path, objects := range privileged(c) {
			for _, object := range objects {
				c.post(t, path, object).refused(t, http.StatusUnprocessableEntity, "Invalid",
					"securityContext.privileged: Forbidden: disallowed by cluster policy")
			}
		}
		c.post(t, c.path("v1", "pods"), pod("plain")).want(t, http.StatusCreated)
		c.patch(t, strategicPatch, c.path("v1", "pods", "plain", "ephemeralcontainers"), debugger).
			refused(t, http.StatusUnprocessableEntity, "Invalid", "disallowed by cluster policy")
	}})
}
