package accuracy

import (
	"fmt"
	"time"

	"github.com/sqube/sqube/server/trial"
)

var jobs = []scenario{
	{
		name: "statefulset", shows: "a StatefulSet whose claims are bound while there are volumes",
		nodes:   one("statefulset"),
		setup:   volume(1) + volume(2) + volume(3) + database.manifest("StatefulSet"),
		kubectl: []string{"scale", "--namespace=statefulset", "statefulset/db", "--replicas=4"},
		verdict: trial.NotAtRest,
	},
	{
		name: "complete", shows: "a Job that completes, index by index",
		nodes:    one("complete"),
		manifest: job("complete", "import", "completionMode: Indexed, completions: 4, parallelism: 2", "exit 0"),
		verdict:  trial.AtRest,
	},
	{
		name: "backoff", shows: "a Job that fails and is tried again until its limit",
		nodes:    one("backoff"),
		manifest: job("backoff", "import", "backoffLimit: 2", "exit 3"),
		verdict:  trial.NotAtRest,
		lasts:    45 * time.Second,
	},
	{
		name: "failing", shows: "a Job that gives up at once",
		quick:    true,
		nodes:    one("failing"),
		manifest: job("failing", "import", "backoffLimit: 0", "exit 3"),
		verdict:  trial.NotAtRest,
	},
	{
		name: "cronjob", shows: "a CronJob that keeps one finished Job",
		nodes: one("cronjob"),
		manifest: fmt.Sprintf(`
apiVersion: batch/v1
kind: CronJob
metadata: {name: tick, namespace: cronjob}
spec:
  schedule: "* * * * *"
  successfulJobsHistoryLimit: 1
  jobTemplate: {spec: {template: {metadata: {annotations: {simnodes.sqube.io/run: exit 0}}, spec: {%s, restartPolicy: Never, containers: [{name: main, image: "work:1"}]}}}}
`, placed("cronjob")),
		verdict: trial.AtRest,
		lasts:   130 * time.Second,
	},
}

var database = workload{scenario: "statefulset", name: "db", image: "db:1", cpu: "50m", replicas: 1,
	container: "volumeMounts: [{name: data, mountPath: /data}]",
	spec: "serviceName: db\n  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: statefulset, " +
		"resources: {requests: {storage: 1Gi}}}}]"}

// volume is a volume for a claim of the StatefulSet: of the smallest that are left, one is taken.
func volume(size int) string {
	return fmt.Sprintf(`
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: statefulset-%[1]d}
spec: {capacity: {storage: %[1]dGi}, accessModes: [ReadWriteOnce], storageClassName: statefulset, persistentVolumeReclaimPolicy: Retain, hostPath: {path: /none}}
`, size)
}

// job is a Job whose containers do what run says.
func job(scenario, name, spec, run string) string {
	return fmt.Sprintf(`
---
apiVersion: batch/v1
kind: Job
metadata: {name: %s, namespace: %s}
spec: {%s, template: {metadata: {annotations: {simnodes.sqube.io/run: %q}}, spec: {%s, restartPolicy: Never, containers: [{name: main, image: "work:1"}]}}}
`, name, scenario, spec, run, placed(scenario))
}
