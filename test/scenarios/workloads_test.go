package scenarios

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqube/sqube/server/simnodes"
	"github.com/sqube/sqube/test/harness/fakenode"
)

var workloads = []scenario{
	{"statefulset", "StatefulSet: Pods in order, claims that are bound and kept, a partitioned update, scaling", statefulSet},
	{"daemonset", "DaemonSet: tainted nodes, tolerations, a node that joins, a taint that evicts, rolling update", daemonSet},
	{"indexed-job", "Job: indexed completions, retries by index, failed indexes, suspension", indexedJob},
	{"failure-policy", "Job: a Pod failure policy by exit code, the backoff limit", failurePolicy},
	{"cronjob", "CronJob: a suspended schedule, its Job, history, a manual Job", cronJob},
}

func statefulSet(u *user) {
	for i := range 3 {
		u.apply(fmt.Sprintf(`
apiVersion: v1
kind: PersistentVolume
metadata: {name: statefulset-%d}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: statefulset
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: /none}
`, i))
	}
	u.apply(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 3
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "db:1", volumeMounts: [{name: data, mountPath: /data}]}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: statefulset, resources: {requests: {storage: 1Gi}}}
`)
	u.contains(u.run("rollout", "status", "statefulset/db", "--timeout=60s"), "roll out complete: 3 new pods")
	pods := u.pods("app=db")
	for i := range pods {
		if name := fmt.Sprint("db-", i); pods[i].Name != name {
			u.Fatalf("Pod %d is %s", i, pods[i].Name)
		}
		if i > 0 && pods[i].CreationTimestamp.Before(pods[i-1].Status.StartTime) {
			u.Errorf("%s was created before %s ran", pods[i].Name, pods[i-1].Name)
		}
		u.contains(u.run("get", "pvc", fmt.Sprint("data-db-", i)), "Bound")
	}

	u.run("patch", "statefulset", "db", "--type=merge", "-p", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":2}}}}`)
	u.run("set", "image", "statefulset/db", "main=db:2")
	u.contains(u.run("rollout", "status", "statefulset/db", "--timeout=60s"), "partitioned roll out complete")
	u.isImage("db-0", "db:1")
	u.isImage("db-1", "db:1")
	u.isImage("db-2", "db:2")
	u.run("patch", "statefulset", "db", "--type=merge", "-p", `{"spec":{"updateStrategy":{"rollingUpdate":{"partition":0}}}}`)
	u.run("rollout", "status", "statefulset/db", "--timeout=60s")
	u.runs("app=db", "db:2", 3)

	u.run("scale", "statefulset/db", "--replicas=1")
	u.runs("app=db", "db:2", 1)
	u.isImage("db-0", "db:2")
	u.contains(u.run("get", "pvc"), "data-db-0", "data-db-1", "data-db-2")
	u.event("SuccessfulCreate", "db")
}

// isImage asserts that a Pod has an image.
func (u *user) isImage(pod, image string) {
	u.Helper()
	if has := u.run("get", "pod", pod, "-o", "jsonpath={.spec.containers[0].image}"); has != image {
		u.Errorf("Pod %s has the image %s, not %s", pod, has, image)
	}
}

func daemonSet(u *user) {
	own := corev1.Taint{Key: "scenario", Value: u.namespace, Effect: corev1.TaintEffectNoSchedule}
	special := corev1.Taint{Key: "special", Effect: corev1.TaintEffectNoExecute}
	labels := map[string]string{"scenario": u.namespace}
	fakenode.Join(u.T, u.config, simnodes.Options{Names: []string{"daemon-plain"}, Labels: labels, Taints: []corev1.Taint{own}})
	fakenode.Join(u.T, u.config, simnodes.Options{Names: []string{"daemon-special"}, Labels: labels, Taints: []corev1.Taint{own, special}})
	u.apply(`
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {scenario: daemonset}
      tolerations: [{key: scenario, operator: Exists}]
      containers: [{name: main, image: "agent:1"}]
`)
	u.daemons("agent:1", "daemon-plain")
	u.run("patch", "daemonset", "agent", "--type=json", "-p", `[{"op":"add","path":"/spec/template/spec/tolerations/-","value":{"key":"special","operator":"Exists"}}]`)
	u.daemons("agent:1", "daemon-plain", "daemon-special")
	fakenode.Join(u.T, u.config, simnodes.Options{Names: []string{"daemon-third"}, Labels: labels, Taints: []corev1.Taint{own}})
	u.daemons("agent:1", "daemon-plain", "daemon-special", "daemon-third")
	u.run("taint", "node", "daemon-third", "other=yes:NoExecute")
	u.daemons("agent:1", "daemon-plain", "daemon-special")
	u.run("set", "image", "daemonset/agent", "main=agent:2")
	u.contains(u.run("rollout", "status", "daemonset/agent", "--timeout=60s"), "successfully rolled out")
	u.daemons("agent:2", "daemon-plain", "daemon-special")
}

// daemons waits until each of the nodes, and no other, runs one Pod of the image.
func (u *user) daemons(image string, nodes ...string) {
	u.Helper()
	u.until(fmt.Sprint("there are Pods on ", nodes), func() (string, bool) {
		pods := u.pods("app=agent")
		on := map[string]bool{}
		for i := range pods {
			if pods[i].Status.Phase == corev1.PodRunning && pods[i].DeletionTimestamp == nil && pods[i].Spec.Containers[0].Image == image {
				on[pods[i].Spec.NodeName] = true
			}
		}
		for _, node := range nodes {
			if !on[node] {
				return show(pods), false
			}
		}
		return show(pods), len(pods) == len(nodes)
	})
}

// job returns a manifest; spec are additional lines of its spec, annotations those of its Pods.
func job(name, annotations string, spec ...string) string {
	return fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %s}
spec:
  %s
  template:
    metadata: {annotations: {%s}}
    spec:
      restartPolicy: Never
      containers: [{name: main, image: "work:1"}]
`, name, strings.Join(spec, "\n  "), annotations)
}

// field returns a field of an object, by a path such as .status.phase.
func (u *user) field(kind, name, path string) string {
	u.Helper()
	return u.run("get", kind, name, "-o", "jsonpath={"+path+"}")
}

func indexedJob(u *user) {
	u.apply(job("all", "simnodes.sqube.io/run: exit 0", "completionMode: Indexed", "completions: 5", "parallelism: 2", "suspend: true"))
	u.run("wait", "--for=condition=Suspended", "job/all", "--timeout=60s")
	if pods := u.pods("job-name=all"); len(pods) > 0 {
		u.Errorf("a suspended Job has Pods:\n%s", show(pods))
	}
	u.run("patch", "job", "all", "--type=merge", "-p", `{"spec":{"suspend":false}}`)
	u.run("wait", "--for=condition=Complete", "job/all", "--timeout=60s")
	if indexes := u.field("job", "all", ".status.completedIndexes"); indexes != "0-4" {
		u.Errorf("%s are completed", indexes)
	}

	u.apply(job("some", "simnodes.sqube.io/run: exit 0",
		"completionMode: Indexed", "completions: 5", "parallelism: 5", "backoffLimitPerIndex: 0", "maxFailedIndexes: 5"))
	u.run("wait", "--for=condition=Failed", "job/some", "--timeout=60s")
	if completed, failed := u.field("job", "some", ".status.completedIndexes"), u.field("job", "some", ".status.failedIndexes"); completed != "0,1,3,4" || failed != "2" {
		u.Errorf("%s are completed, %s failed", completed, failed)
	}
	u.contains(u.field("job", "some", ".status.conditions"), `"FailedIndexes"`)
}

func failurePolicy(u *user) {
	u.apply(job("fatal", "simnodes.sqube.io/run: exit 42", "backoffLimit: 6",
		"podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}"))
	u.run("wait", "--for=condition=Failed", "job/fatal", "--timeout=60s")
	u.contains(u.field("job", "fatal", ".status.conditions"), `"PodFailurePolicy"`, "exit code 42")
	u.event("PodFailurePolicy", "fatal")
	if failed := u.field("job", "fatal", ".status.failed"); failed != "1" {
		u.Errorf("%s Pods were tried", failed)
	}
	u.apply(job("stubborn", "simnodes.sqube.io/run: exit 1", "backoffLimit: 0"))
	u.run("wait", "--for=condition=Failed", "job/stubborn", "--timeout=60s")
	u.event("BackoffLimitExceeded", "stubborn")
}

func cronJob(u *user) {
	u.apply(`
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick}
spec:
  schedule: "* * * * *"
  suspend: true
  successfulJobsHistoryLimit: 2 # the next minute's Job must not remove the manual one
  jobTemplate:
    metadata: {labels: {app: tick}}
    spec:
      template:
        metadata: {annotations: {simnodes.sqube.io/run: exit 0}}
        spec:
          restartPolicy: Never
          containers: [{name: main, image: "work:1"}]
`)
	// A run missed while it was suspended starts right after it is resumed, which saves waiting for the next minute.
	u.run("patch", "cronjob", "tick", "--subresource=status", "--type=merge", "-p",
		fmt.Sprintf(`{"status":{"lastScheduleTime":%q}}`, time.Now().UTC().Add(-2*time.Minute).Format(time.RFC3339)))
	u.run("patch", "cronjob", "tick", "--type=merge", "-p", `{"spec":{"suspend":false}}`)
	u.until("its Job has completed", func() (string, bool) {
		cron, err := u.BatchV1().CronJobs(u.namespace).Get(u.Context(), "tick", metav1.GetOptions{})
		if err != nil {
			return err.Error(), false
		}
		return fmt.Sprint(cron.Status), cron.Status.LastSuccessfulTime != nil
	})
	u.event("SuccessfulCreate", "tick")
	u.event("SawCompletedJob", "tick")
	u.run("create", "job", "by-hand", "--from=cronjob/tick")
	u.run("wait", "--for=condition=Complete", "job/by-hand", "--timeout=60s")
	u.run("delete", "cronjob", "tick", "--cascade=foreground", "--timeout=60s")
	u.gone("jobs", "--selector=app=tick")
}
