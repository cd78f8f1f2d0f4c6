package scenarios

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var policies = []scenario{
	{"quota", "ResourceQuota: Pods and objects by count, CPU; a Deployment that it blocks, and then allows", quota},
	{"limit-range", "LimitRange: defaults of containers, minimum and maximum", limitRange},
	{"admission-policy", "ValidatingAdmissionPolicy: on every kind used here, on controllers' Pods and on scale, with parameters, warnings", admissionPolicy},
	{"exemption", "A ValidatingAdmissionPolicy that exempts system:masters forbids a privileged Pod also to the controllers that a Deployment works through", exemption},
}

func quota(u *user) {
	u.apply(`
apiVersion: v1
kind: ResourceQuota
metadata: {name: small}
spec: {hard: {pods: 2, requests.cpu: 350m, count/configmaps: 2}}
`)
	u.used("pods", "0")
	u.used("count/configmaps", "1") // the cluster's CA
	u.run("create", "configmap", "second")
	u.used("count/configmaps", "2")
	u.contains(u.refused("{apiVersion: v1, kind: ConfigMap, metadata: {name: third}}"), "exceeded quota: small", "used: count/configmaps=2, limited: count/configmaps=2")

	u.apply(deployment("web", 5, "web:1"))
	u.runs("app=web", "web:1", 2)
	u.event("FailedCreate", "web")
	u.until("the Deployment shows why", func() (string, bool) {
		conditions := u.field("deployment", "web", "range .status.conditions[*]}{.type}={.status} {.message}; {end")
		return conditions, strings.Contains(conditions, "ReplicaFailure=True") && strings.Contains(conditions, "exceeded quota: small")
	})
	u.used("pods", "2")
	u.used("requests.cpu", "200m")
	u.run("patch", "quota", "small", "--type=merge", "-p", `{"spec":{"hard":{"pods":"9"}}}`)
	u.runs("app=web", "web:1", 3) // which is what the CPU allows
	u.used("requests.cpu", "300m")
}

// used waits until the used amount of a resource is amount.
func (u *user) used(resource, amount string) {
	u.Helper()
	u.until(resource+" used are "+amount, func() (string, bool) {
		quota, err := u.CoreV1().ResourceQuotas(u.namespace).Get(u.Context(), "small", metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		for name, used := range quota.Status.Used {
			if string(name) == resource && used.String() == amount {
				return "", true
			}
		}
		return fmt.Sprint(quota.Status), false
	})
}

// pod returns the manifest of a Pod with one container that has these resources.
func pod(name, resources string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: "work:1", resources: %s}]}
`, name, resources)
}

func limitRange(u *user) {
	u.apply(`
apiVersion: v1
kind: LimitRange
metadata: {name: limits}
spec:
  limits:
  - type: Container
    default: {cpu: 200m}
    defaultRequest: {cpu: 100m}
    min: {cpu: 50m}
    max: {cpu: 500m}
`)
	// Admission applies LimitRanges once its informer has them.
	u.until("it is in effect", func() (string, bool) {
		out, err := u.try(pod("big", "{limits: {cpu: 1}}"), "create", "--dry-run=server", "-f", "-")
		return out, err != nil && strings.Contains(out, "maximum cpu usage per Container is 500m, but limit is 1")
	})
	u.apply(pod("plain", "{}"))
	if resources := u.field("pod", "plain", ".spec.containers[0].resources"); resources != `{"limits":{"cpu":"200m"},"requests":{"cpu":"100m"}}` {
		u.Errorf("the defaults are %s", resources)
	}
	u.run("wait", "--for=condition=Ready", "pod/plain", "--timeout=60s")
	u.contains(u.refused(pod("small", "{requests: {cpu: 10m}}")), "minimum cpu usage per Container is 50m, but request is 10m")
}

// everywhere is a policy that matches every write of every scenario, and denies objects of one name.
const everywhere = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: everywhere}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], resources: ["*/*"], operations: [CREATE, UPDATE]}]
  validations:
  - {expression: "!has(object.metadata) || !has(object.metadata.name) || object.metadata.name != 'refused-everywhere'", message: this name is reserved}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: everywhere}
spec: {policyName: everywhere, validationActions: [Deny]}
`

// refusals returns an object of each kind that the scenarios create, all with the denied name.
func refusals() []string {
	const name = "refused-everywhere"
	manifests := []string{
		deployment(name, 1, "web:1"), job(name, "", "completions: 1"), pod(name, "{}"),
		strings.Replace(deployment(name, 1, "web:1"), "kind: Deployment", "kind: ReplicaSet", 1),
		strings.Replace(strings.Replace(deployment(name, 1, "web:1"), "kind: Deployment", "kind: DaemonSet", 1), "  replicas: 1\n", "", 1),
		strings.Replace(deployment(name, 1, "web:1", "serviceName: db"), "kind: Deployment", "kind: StatefulSet", 1),
	}
	for _, object := range []string{
		"apiVersion: v1, kind: ConfigMap",
		"apiVersion: v1, kind: Secret",
		"apiVersion: v1, kind: Namespace",
		"apiVersion: v1, kind: ServiceAccount",
		"apiVersion: v1, kind: Node",
		"apiVersion: v1, kind: Service, spec: {ports: [{port: 80}]}",
		"apiVersion: v1, kind: PersistentVolumeClaim, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}",
		"apiVersion: v1, kind: PersistentVolume, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /none}}",
		"apiVersion: v1, kind: ResourceQuota, spec: {hard: {pods: 1}}",
		"apiVersion: v1, kind: LimitRange, spec: {limits: []}",
		"apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4, endpoints: []",
		"apiVersion: coordination.k8s.io/v1, kind: Lease",
		"apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, value: 1",
		"apiVersion: policy/v1, kind: PodDisruptionBudget, spec: {minAvailable: 1}",
		"apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, spec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}",
		"apiVersion: batch/v1, kind: CronJob, spec: {schedule: '* * * * *', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: work}]}}}}}",
	} {
		manifests = append(manifests, fmt.Sprintf("{metadata: {name: %s}, %s}", name, object))
	}
	return manifests
}

// deploymentPolicies limit the replicas of Deployments by a parameter, deny images without a tag, and warn about objects
// without an owner.
const deploymentPolicies = `
apiVersion: v1
kind: ConfigMap
metadata: {name: limits}
data: {replicas: "3"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments, deployments/scale], operations: [CREATE, UPDATE]}]
  validations:
  - expression: object.spec.replicas <= int(params.data.replicas)
    messageExpression: "'no more than ' + params.data.replicas + ' replicas'"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: replicas}
spec:
  policyName: replicas
  paramRef: {name: limits, parameterNotFoundAction: Deny}
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: admission-policy}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: tagged}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  validations:
  - {expression: "object.spec.containers.all(c, c.image.contains(':'))", message: images have tags}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: tagged}
spec:
  policyName: tagged
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: admission-policy}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: owned}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], resources: [deployments], operations: [CREATE, UPDATE]}]
  validations:
  - {expression: "'owner' in object.metadata.?annotations.orValue({})", message: it should have an owner}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: owned}
spec:
  policyName: owned
  validationActions: [Warn]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: admission-policy}}}
`

func admissionPolicy(u *user) {
	manifests := refusals()
	const refusal = "ValidatingAdmissionPolicy 'everywhere' with binding 'everywhere' denied request: this name is reserved"
	if out := u.refused(strings.Join(manifests, "\n---\n")); strings.Count(out, refusal) != len(manifests) {
		u.Errorf("the policy did not deny all %d objects: %s", len(manifests), out)
	}

	u.apply(deploymentPolicies)
	// Each policy is in effect once admission's informer has it.
	for manifest, words := range map[string]string{
		deployment("big", 4, "web:1"):                               "no more than 3 replicas",
		deployment("web", 2, "web:1"):                               "Warning: Validation failed for ValidatingAdmissionPolicy 'owned' with binding 'owned': it should have an owner",
		strings.Replace(pod("untagged", "{}"), "work:1", "work", 1): "images have tags",
	} {
		u.until(words, func() (string, bool) {
			out, _ := u.try(manifest, "create", "--dry-run=server", "-f", "-")
			return out, strings.Contains(out, words)
		})
	}
	u.apply(deployment("web", 2, "web:1"))
	u.rolledOut("deployment/web")
	out, err := u.try("", "scale", "deployment/web", "--replicas=4")
	if err == nil {
		u.Error("it was scaled despite the policy")
	}
	u.contains(out, "no more than 3 replicas")
	u.run("scale", "deployment/web", "--replicas=3")
	u.runs("app=web", "web:1", 3)

	// Policies apply to controllers as well, which report it.
	u.apply(deployment("untagged", 1, "web"))
	u.event("FailedCreate", "untagged")
	u.contains(u.run("get", "events", "--field-selector=reason=FailedCreate"), "images have tags")
	u.run("set", "image", "deployment/untagged", "main=web:1")
	u.rolledOut("deployment/untagged")
}

// unprivileged is a policy that forbids privileged Pods to everyone but system:masters.
const unprivileged = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: unprivileged}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
  matchConditions: [{name: people, expression: "!('system:masters' in request.userInfo.groups)"}]
  validations:
  - {expression: "object.spec.containers.all(c, !c.?securityContext.?privileged.orValue(false))", message: no privileged Pods}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: unprivileged}
spec:
  policyName: unprivileged
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: exemption}}}
`

func exemption(u *user) {
	u.apply(unprivileged)
	privileged := func(manifest string) string {
		return strings.Replace(manifest, "name: main,", "name: main, securityContext: {privileged: true},", 1)
	}
	u.until("it is in effect", func() (string, bool) {
		out, err := u.try(privileged(pod("own", "{}")), "create", "--dry-run=server", "--as=system:serviceaccount:kube-system:replicaset-controller", "-f", "-")
		return out, err != nil && strings.Contains(out, "no privileged Pods")
	})
	u.apply(privileged(pod("own", "{}"))) // by a member of system:masters
	u.apply(privileged(deployment("web", 1, "web:1")))
	u.event("FailedCreate", "web")
	u.contains(u.run("get", "events", "--field-selector=reason=FailedCreate"), "no privileged Pods")
	if pods := u.pods("app=web"); len(pods) > 0 {
		u.Errorf("the Deployment has privileged Pods: %s", show(pods))
	}
}
