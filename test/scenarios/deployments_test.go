package scenarios

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/test/harness/fakenode"
)

var deployments = []scenario{
	{"rollout", "Deployment: create, rollout of a new image, history, undo, restart", rollout},
	{"failed-rollout", "Deployment: an image that can't be pulled, progress deadline, undo; old Pods stay", failedRollout},
	{"pause", "Deployment: pause, changes that wait, resume", pause},
	{"scale", "Deployment: scale up, down and to zero", scale},
	{"autoscale", "HorizontalPodAutoscaler: up and down by the CPU use of Pods, with simulated metrics", autoscale},
}

// deployment returns a manifest; spec are additional lines of its spec.
func deployment(name string, replicas int, image string, spec ...string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, labels: {app: %[1]s}}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  %[4]s
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "%[3]s", resources: {requests: {cpu: 100m}}}]
`, name, replicas, image, strings.Join(spec, "\n  "))
}

// rolledOut waits with kubectl rollout status.
func (u *user) rolledOut(what string) {
	u.Helper()
	u.contains(u.run("rollout", "status", what, "--timeout=60s"), "successfully rolled out")
}

// images counts the images of the Pods that are not terminating.
func (u *user) images(selector string) map[string]int {
	u.Helper()
	images := map[string]int{}
	for _, pod := range u.pods(selector) {
		if pod.DeletionTimestamp == nil {
			images[pod.Spec.Containers[0].Image]++
		}
	}
	return images
}

// runs waits until the selector selects exactly count Pods, all with the image.
func (u *user) runs(selector, image string, count int) {
	u.Helper()
	u.until(fmt.Sprintf("there are %d Pods %s of %s", count, selector, image), func() (string, bool) {
		images := u.images(selector)
		return fmt.Sprint(images), len(images) == min(count, 1) && images[image] == count
	})
}

func rollout(u *user) {
	u.apply(deployment("web", 3, "web:1"))
	u.rolledOut("deployment/web")
	u.runs("app=web", "web:1", 3)
	u.run("set", "image", "deployment/web", "main=web:2")
	u.rolledOut("deployment/web")
	u.runs("app=web", "web:2", 3)
	u.contains(u.run("rollout", "history", "deployment/web"), "1 ", "2 ")
	u.contains(u.run("rollout", "history", "deployment/web", "--revision=1"), "web:1")

	u.contains(u.run("rollout", "undo", "deployment/web"), "rolled back")
	u.rolledOut("deployment/web")
	u.runs("app=web", "web:1", 3)
	u.run("rollout", "undo", "deployment/web", "--to-revision=2")
	u.rolledOut("deployment/web")
	u.runs("app=web", "web:2", 3)

	before := u.pods("app=web")
	u.run("rollout", "restart", "deployment/web")
	u.rolledOut("deployment/web")
	u.until("all Pods are new", func() (string, bool) {
		old := map[string]bool{}
		for i := range before {
			old[before[i].Name] = true
		}
		pods := u.pods("app=web")
		for i := range pods {
			if old[pods[i].Name] {
				return show(pods), false
			}
		}
		return show(pods), len(pods) == 3
	})
	u.event("ScalingReplicaSet", "web")
}

func failedRollout(u *user) {
	u.apply(deployment("web", 2, "web:1", "strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}"))
	u.rolledOut("deployment/web")
	deadline := func(seconds int) { // short only for the rollout that must exceed it
		u.run("patch", "deployment/web", "--patch", fmt.Sprintf(`{"spec":{"progressDeadlineSeconds":%d}}`, seconds))
	}
	deadline(3)
	u.run("set", "image", "deployment/web", "main="+fakenode.MissingImage)
	out, err := u.try("", "rollout", "status", "deployment/web", "--timeout=60s")
	if err == nil {
		u.Errorf("it rolled out: %s", out)
	}
	u.contains(out, "exceeded its progress deadline")
	u.until("a Pod shows why", func() (string, bool) {
		out := u.run("get", "pods")
		return out, strings.Contains(out, "ImagePullBackOff")
	})
	if images := u.images("app=web"); images["web:1"] != 2 {
		u.Errorf("the old Pods did not stay: %v", images)
	}
	deadline(600)
	u.run("rollout", "undo", "deployment/web")
	u.rolledOut("deployment/web")
	u.runs("app=web", "web:1", 2)
}

func pause(u *user) {
	u.apply(deployment("web", 2, "web:1"))
	u.rolledOut("deployment/web")
	u.run("rollout", "pause", "deployment/web")
	u.run("set", "image", "deployment/web", "main=web:2")
	u.run("scale", "deployment/web", "--replicas=3")
	// A paused Deployment scales, but does not roll out the new image.
	u.runs("app=web", "web:1", 3)
	u.until("it shows that it is paused", func() (string, bool) {
		d, err := u.AppsV1().Deployments(u.namespace).Get(u.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		for _, condition := range d.Status.Conditions {
			if condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionUnknown && condition.Reason == "DeploymentPaused" {
				return "", true
			}
		}
		return fmt.Sprint(d.Status), false
	})
	u.run("rollout", "resume", "deployment/web")
	u.rolledOut("deployment/web")
	u.runs("app=web", "web:2", 3)
}

func scale(u *user) {
	u.apply(deployment("web", 1, "web:1"))
	u.rolledOut("deployment/web")
	for _, replicas := range []int{6, 2, 0} {
		u.run("scale", "deployment/web", fmt.Sprint("--replicas=", replicas))
		u.runs("app=web", "web:1", replicas)
		u.rolledOut("deployment/web")
	}
	u.until("there are none, as requested", func() (string, bool) {
		out := u.run("get", "deployment", "web")
		return out, strings.Contains(out, "0/0")
	})
}

// podMetrics serves metrics-server's API as a custom resource, so that the test can write the metrics.
const podMetrics = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: pods.metrics.k8s.io
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: metrics.k8s.io
  scope: Namespaced
  names: {plural: pods, kind: PodMetrics, listKind: PodMetricsList}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

func autoscale(u *user) {
	u.apply(podMetrics)
	// kubectl wait fails if the definition has no conditions yet.
	u.until("the metrics are served", func() (string, bool) {
		conditions := u.field("crd", "pods.metrics.k8s.io", "range .status.conditions[*]}{.type}={.status} {end")
		return conditions, strings.Contains(conditions, "Established=True")
	})
	u.apply(deployment("web", 1, "web:1"))
	u.rolledOut("deployment/web")
	u.run("autoscale", "deployment/web", "--min=1", "--max=4", "--cpu=50%")
	u.autoscaled("200m", 4, "ScalingLimited=True:TooManyReplicas") // of 100m
	u.runs("app=web", "web:1", 4)
	u.event("SuccessfulRescale", "web")
	u.autoscaled("1m", 1, "ScalingActive=True:ValidMetricFound")
	u.runs("app=web", "web:1", 1)
}

// autoscaled sets the CPU use of each Pod, until the Deployment has the wanted replicas and the autoscaler the condition.
func (u *user) autoscaled(cpu string, replicas int32, condition string) {
	u.Helper()
	u.until(fmt.Sprintf("%d Pods are requested", replicas), func() (string, bool) {
		u.use(cpu)
		d, err := u.AppsV1().Deployments(u.namespace).Get(u.Context(), "web", metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		if *d.Spec.Replicas != replicas {
			return fmt.Sprintf("%d are requested", *d.Spec.Replicas), false
		}
		conditions := u.field("hpa", "web", "range .status.conditions[*]}{.type}={.status}:{.reason} {end")
		return conditions, strings.Contains(conditions, condition)
	})
}

// use writes the CPU use of each Pod.
func (u *user) use(cpu string) {
	u.Helper()
	var metrics strings.Builder
	pods := u.pods("app=web")
	for i := range pods {
		fmt.Fprintf(&metrics, `---
apiVersion: metrics.k8s.io/v1beta1
kind: PodMetrics
metadata: {name: %s, labels: {app: web}}
timestamp: %q
window: 1s
containers: [{name: main, usage: {cpu: %s, memory: 1Mi}}]
`, pods[i].Name, time.Now().UTC().Format(time.RFC3339), cpu)
	}
	u.apply(metrics.String())
}
