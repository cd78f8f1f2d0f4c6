package deletion

import (
	"strings"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
	"github.com/sqube/sqube/test/harness"
)

// namespaceDeletions are the promises about the deletion of namespaces and definitions together with their objects.
var namespaceDeletions = []kit.Promise{
	{Statement: "a deleted namespace is Terminating until its objects, including custom resources, are gone", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)).Created(t)
		c.Post(t, c.Path("v1", "configmaps"), kit.WithFinalizers("held", "example.com/one")).Created(t)
		c.Post(t, c.Path("v1", "services"), kit.Service("a")).Created(t)
		c.Post(t, c.Path(groupVersion, "widgets"), kit.Widget(groupVersion, "a")).Created(t)
		c.Post(t, c.Path("events.k8s.io/v1", "events"), kit.Manifest(`{metadata: {name: a}, eventTime: "2026-01-01T00:00:00.000000Z", action: Test,
			reason: Test, type: Normal, reportingController: example.com/test, reportingInstance: test, regarding: {namespace: %s}}`, c.Namespace)).Created(t)
		namespace := c.ClusterPath("v1", "namespaces", c.Namespace)

		a := c.Delete(t, namespace).OK(t)
		if a.Text(t, "status", "phase") != "Terminating" || a.Value(t, "metadata", "deletionTimestamp") == nil {
			t.Errorf("the response is %s", a.Body)
		}
		kit.Equal(t, a.Value(t, "spec", "finalizers"), []any{"kubernetes"})
		c.WaitGone(t, c.Path("v1", "configmaps", "a"))
		c.WaitGone(t, c.Path("v1", "services", "a"))
		c.WaitGone(t, c.Path(groupVersion, "widgets", "a"))
		c.WaitGone(t, c.Path("events.k8s.io/v1", "events", "a"))

		conditions := map[string]string{ // by "type/status", part of the message
			"NamespaceDeletionDiscoveryFailure/False":           "All resources successfully discovered",
			"NamespaceDeletionGroupVersionParsingFailure/False": "All legacy kube types successfully parsed",
			"NamespaceDeletionContentFailure/False":             "All content successfully deleted, may be waiting on finalization",
			"NamespaceContentRemaining/True":                    "Some resources are remaining: configmaps. has 1 resource instances",
			"NamespaceFinalizersRemaining/True":                 "Some content in the namespace has finalizers remaining: example.com/one in 1 resource instances",
		}
		harness.Eventually(t, "the conditions show what the namespace waits for", func() bool {
			list, _ := c.Get(t, namespace).OK(t).Value(t, "status", "conditions").([]any)
			met := 0
			for _, item := range list {
				condition := item.(map[string]any)
				want, ok := conditions[condition["type"].(string)+"/"+condition["status"].(string)]
				if ok && strings.Contains(condition["message"].(string), want) {
					met++
				}
			}
			return met == len(conditions)
		})
		c.SetFinalizers(t, c.Path("v1", "configmaps", "held")).OK(t)
		c.WaitGone(t, namespace)
	}},
	{Statement: "nothing can be created in a namespace being deleted, and the error says why", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		namespace := c.ClusterPath("v1", "namespaces", c.Namespace)
		c.Post(t, c.Path("v1", "configmaps"), kit.WithFinalizers("held", "example.com/one")).Created(t)
		c.Delete(t, namespace).OK(t)
		for _, a := range []kit.Answer{
			c.Post(t, c.Path("v1", "configmaps"), kit.ConfigMap("a", nil)),
			c.Post(t, c.Path("v1", "services"), kit.Service("a")),
			c.Post(t, c.Path("apps/v1", "deployments"), kit.Deployment("a")),
			c.Post(t, c.Path(groupVersion, "widgets"), kit.Widget(groupVersion, "a")),
			c.Patch(t, kit.ApplyPatch, c.Path(groupVersion, "widgets", "a")+"?fieldManager=a", kit.Widget(groupVersion, "a")),
			c.Post(t, c.Path("v1", "configmaps")+"?dryRun=All", kit.ConfigMap("a", nil)),
		} {
			a.Forbidden(t, "unable to create new content in namespace "+c.Namespace+" because it is being terminated")
			kit.Equal(t, a.Value(t, "details", "causes"), []any{map[string]any{"reason": "NamespaceTerminating", "field": "metadata.namespace",
				"message": "namespace " + c.Namespace + " is being terminated"}})
		}
		c.Patch(t, kit.MergePatch, c.Path("v1", "configmaps", "held"), `{"data":{"a":"b"}}`).OK(t)
		c.SetFinalizers(t, c.Path("v1", "configmaps", "held")).OK(t)
		c.WaitGone(t, namespace)
	}},
	{Statement: "a namespace is removed when the subresource finalize removes its last finalizer, and not before", Proof: func(t *testing.T, c *kit.Cluster) {
		name := c.Namespace + "-own"
		path := c.ClusterPath("v1", "namespaces", name)
		object := kit.Manifest("{apiVersion: v1, kind: Namespace, metadata: {name: %s, finalizers: [example.com/one]}, spec: {finalizers: [example.com/two]}}", name)
		created := c.Post(t, c.ClusterPath("v1", "namespaces"), object).Created(t)
		kit.Equal(t, created.Value(t, "spec", "finalizers"), []any{"example.com/two", "kubernetes"})
		c.Delete(t, path).OK(t)
		harness.Eventually(t, "the controller has done its part", func() bool {
			left, _ := c.Get(t, path).OK(t).Value(t, "spec", "finalizers").([]any)
			return len(left) == 1 && left[0] == "example.com/two"
		})
		stuck := c.Get(t, path).Object(t)
		// A PUT of the namespace itself keeps them.
		kept := c.Put(t, path, kit.With(stuck, []string{}, "spec", "finalizers")).OK(t)
		kit.Equal(t, kept.Value(t, "spec", "finalizers"), []any{"example.com/two"})
		c.Put(t, path+"/finalize", kit.With(kept.Object(t), []string{}, "spec", "finalizers")).OK(t)
		c.Get(t, path).OK(t)
		c.SetFinalizers(t, path).OK(t)
		c.WaitGone(t, path)
	}},
	{Statement: "the namespaces default, kube-system and kube-public can't be deleted", Proof: func(t *testing.T, c *kit.Cluster) {
		for _, name := range []string{"default", "kube-system", "kube-public"} {
			c.Delete(t, c.ClusterPath("v1", "namespaces", name)).Forbidden(t,
				`namespaces "`+name+`" is forbidden: this namespace may not be deleted`)
		}
	}},
}
