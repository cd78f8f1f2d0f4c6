package accuracy

import (
	"time"

	"github.com/sqube/sqube/server/trial"
)

var deletions = []scenario{
	{
		name: "namespace", shows: "a namespace that is deleted, but for what a finalizer holds",
		quick: true,
		setup: workload{scenario: "namespace", name: "web", image: "web:1", cpu: "100m", replicas: 2}.deployment() + `
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: namespace, finalizers: [example.com/held]}}
`,
		kubectl: []string{"delete", "namespace", "namespace", "--wait=false"},
		verdict: trial.NotAtRest,
		lasts:   10 * time.Second, // kube-controller-manager begins after 5 s
	},
	{
		name: "emptied", shows: "a namespace that is deleted with everything in it",
		setup:   workload{scenario: "emptied", name: "web", image: "web:1", cpu: "100m", replicas: 2}.deployment(),
		kubectl: []string{"delete", "namespace", "emptied"},
		verdict: trial.AtRest,
	},
	{
		name: "definition", shows: "a CustomResourceDefinition that is deleted with its objects, but for one",
		setup: `
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.definition.example.com}
spec:
  group: definition.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`,
		more: `
---
{apiVersion: definition.example.com/v1, kind: Widget, metadata: {name: free, namespace: definition}}
---
{apiVersion: definition.example.com/v1, kind: Widget, metadata: {name: held, namespace: definition, finalizers: [example.com/held]}}
`,
		kubectl: []string{"delete", "customresourcedefinition", "widgets.definition.example.com", "--wait=false"},
		verdict: trial.NotAtRest,
	},
	{
		name: "orphans", shows: "a Deployment that is deleted without its Pods",
		setup:   workload{scenario: "orphans", name: "web", image: "web:1", cpu: "100m", replicas: 2}.deployment(),
		kubectl: []string{"delete", "--namespace=orphans", "deployment/web", "--cascade=orphan"},
		verdict: trial.AtRest,
	},
}
