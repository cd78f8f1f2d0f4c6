package accuracy

import (
	"fmt"

	"github.com/sqube/sqube/server/trial"
)

var policies = []scenario{
	{
		name: "policy", shows: "a policy that refuses a Deployment's Pods",
		quick:    true,
		setup:    tagged("policy", "[\"\"]", "pods", "object.spec.containers.all(c, c.image.contains(':'))", "images have tags"),
		manifest: workload{scenario: "policy", name: "web", image: "web", cpu: "100m", replicas: 2}.deployment(),
		verdict:  trial.NotAtRest,
	},
	{
		name: "refused", shows: "a policy that refuses the change",
		quick: true,
		setup: tagged("refused", "[apps]", "deployments", "object.spec.replicas <= 3", "no more than 3 replicas") +
			workload{scenario: "refused", name: "web", image: "web:1", cpu: "100m", replicas: 2}.deployment(),
		manifest: workload{scenario: "refused", name: "web", image: "web:1", cpu: "100m", replicas: 4}.deployment(),
		verdict:  trial.RefusedChange,
	},
	{
		name: "privileged", shows: "Pod security that refuses privileged Pods",
		setup:    namespace("privileged", "pod-security.kubernetes.io/enforce: baseline, pod-security.kubernetes.io/warn: restricted"),
		manifest: workload{scenario: "privileged", name: "agent", image: "agent:1", cpu: "100m", replicas: 1, container: "securityContext: {privileged: true}"}.deployment(),
		verdict:  trial.NotAtRest,
	},
	{
		name: "enforced", shows: "Pod security that is enforced from now on",
		setup:    workload{scenario: "enforced", name: "agent", image: "agent:1", cpu: "100m", replicas: 2, container: "securityContext: {privileged: true}"}.deployment(),
		manifest: namespace("enforced", "pod-security.kubernetes.io/enforce: baseline"),
		verdict:  trial.AtRest,
	},
	{
		name: "limits", shows: "limits that give Pods their defaults, and refuse too large ones",
		nodes: one("limits"),
		setup: `
---
apiVersion: v1
kind: LimitRange
metadata: {name: small, namespace: limits}
spec: {limits: [{type: Container, default: {cpu: 200m, memory: 10Mi}, defaultRequest: {cpu: 100m, memory: 10Mi}, max: {cpu: 500m}}]}
`,
		manifest: workload{scenario: "limits", name: "large", image: "web:1", cpu: "600m", replicas: 1}.deployment() +
			workload{scenario: "limits", name: "small", image: "web:1", cpu: "100m", replicas: 1}.deployment(),
		verdict: trial.NotAtRest,
	},
	{
		name: "webhook", shows: "a webhook that is asked, and refuses Pods",
		nodes: one("webhook"),
		setup: `
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: webhook}
webhooks:
- name: pods.webhook.example.com
  clientConfig: {url: "https://{{webhook}}/", caBundle: "{{authority}}"}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: webhook}}
  sideEffects: None
  admissionReviewVersions: [v1]
` + workload{scenario: "webhook", name: "web", image: "web:1", cpu: "100m", replicas: 2}.deployment(),
		flags:    []string{"--outbound", "{{webhook}}"},
		manifest: workload{scenario: "webhook", name: "web", image: "forbidden:1", cpu: "100m", replicas: 2}.deployment(),
		verdict:  trial.NotAtRest,
	},
}

// tagged is a policy for what is made in a scenario's namespace.
func tagged(scenario, groups, resources, expression, message string) string {
	return fmt.Sprintf(`
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: %[2]s, apiVersions: [v1], resources: [%[3]s], operations: [CREATE, UPDATE]}]
  validations: [{expression: "%[4]s", message: %[5]s}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec:
  policyName: %[1]s
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}}
`, scenario, groups, resources, expression, message)
}
