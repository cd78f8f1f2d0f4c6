package accuracy

import (
	"time"

	"github.com/sqube/sqube/server/trial"
)

var rollouts = []scenario{
	{
		name: "fits", shows: "a rollout that fits on the nodes",
		setup: workload{scenario: "fits", name: "web", image: "web:1", cpu: "100m", replicas: 4}.deployment() + `
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: fits}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
`,
		manifest: workload{scenario: "fits", name: "web", image: "web:2", cpu: "150m", replicas: 4}.deployment(),
		verdict:  trial.AtRest,
	},
	{
		name: "full", shows: "a rollout that does not fit, and passes its deadline",
		quick:    true,
		setup:    workload{scenario: "full", name: "web", image: "web:1", cpu: "400m", replicas: 2, spec: "progressDeadlineSeconds: 5"}.deployment(),
		manifest: workload{scenario: "full", name: "web", image: "web:2", cpu: "700m", replicas: 2, spec: "progressDeadlineSeconds: 5"}.deployment(),
		verdict:  trial.NotAtRest,
		lasts:    7 * time.Second,
	},
	{
		name: "quota", shows: "a quota that stops a Deployment",
		quick: true,
		nodes: one("quota"),
		setup: namespace("quota", "") + `
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: small, namespace: quota}, spec: {hard: {pods: 3, requests.cpu: 1}}}
` + workload{scenario: "quota", name: "web", image: "web:1", cpu: "100m", replicas: 2}.deployment(),
		manifest: workload{scenario: "quota", name: "web", image: "web:1", cpu: "100m", replicas: 5}.deployment(),
		verdict:  trial.NotAtRest,
	},
	{
		name: "load", shows: "more load, for which a HorizontalPodAutoscaler scales up",
		nodes: one("load"),
		setup: workload{scenario: "load", name: "web", image: "web:1", cpu: "100m", replicas: 2}.deployment() + `
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: load}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 8
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
`,
		flags:   []string{"--namespace", "load", "--load", "deployment/web=0.25"},
		make:    func(c *cluster) { c.servers.load.Store(250) },
		verdict: trial.AtRest,
		lasts:   50 * time.Second,
	},
	{
		name: "fight", shows: "two service accounts that fight over a field, as controllers do",
		setup: "{apiVersion: v1, kind: ConfigMap, metadata: {name: shared, namespace: fight}, data: {owner: nobody}}",
		script: `
set -e
for turn in 1 2 3 4; do
	for who in red blue; do
		kubectl patch configmap shared --namespace fight --type=merge --patch "{\"data\":{\"owner\":\"$who\"}}" \
			--as "system:serviceaccount:fight:$who" --as-group system:masters
	done
done
`,
		fight:   ".data.owner",
		verdict: trial.NotAtRest,
	},
}
