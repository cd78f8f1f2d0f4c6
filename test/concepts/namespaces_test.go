package concepts

import (
	"net/http"
	"strings"
	"testing"
)

// namespaceDeletions are the promises about the deletion of what has contents: namespaces, and definitions of resources.
var namespaceDeletions = []promise{
	{"a namespace that is deleted is Terminating until what is in it is gone, custom resources included", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		c.post(t, c.path("v1", "configmaps"), configMap("a", nil)).created(t)
		c.post(t, c.path("v1", "configmaps"), finalized("held", "example.com/one")).created(t)
		c.post(t, c.path("v1", "services"), service("a")).created(t)
		c.post(t, c.path(groupVersion, "widgets"), widget(groupVersion, "a")).created(t)
		namespace := c.global("v1", "namespaces", c.namespace)

		a := c.delete(t, namespace).ok(t)
		if a.text(t, "status", "phase") != "Terminating" || a.value(t, "metadata", "deletionTimestamp") == nil {
			t.Errorf("the answer is %s", a.Body)
		}
		equal(t, a.value(t, "spec", "finalizers"), []any{"kubernetes"})
		c.gone(t, c.path("v1", "configmaps", "a"))
		c.gone(t, c.path("v1", "services", "a"))
		c.gone(t, c.path(groupVersion, "widgets", "a"))

		conditions := map[string]string{ // as "type/status", what their message has
			"NamespaceDeletionDiscoveryFailure/False":           "All resources successfully discovered",
			"NamespaceDeletionGroupVersionParsingFailure/False": "All legacy kube types successfully parsed",
			"NamespaceDeletionContentFailure/False":             "All content successfully deleted, may be waiting on finalization",
			"NamespaceContentRemaining/True":                    "Some resources are remaining: configmaps. has 1 resource instances",
			"NamespaceFinalizersRemaining/True":                 "Some content in the namespace has finalizers remaining: example.com/one in 1 resource instances",
		}
		eventually(t, "the conditions tell what the namespace waits for", func() bool {
			list, _ := c.get(t, namespace).ok(t).value(t, "status", "conditions").([]any)
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
		c.setFinalizers(t, c.path("v1", "configmaps", "held")).ok(t)
		c.gone(t, namespace)
	}},
	{"nothing can be created in a namespace that is being deleted, and the refusal says that this is why", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		namespace := c.global("v1", "namespaces", c.namespace)
		c.post(t, c.path("v1", "configmaps"), finalized("held", "example.com/one")).created(t)
		c.delete(t, namespace).ok(t)
		for _, a := range []answer{
			c.post(t, c.path("v1", "configmaps"), configMap("a", nil)),
			c.post(t, c.path("v1", "services"), service("a")),
			c.post(t, c.path("apps/v1", "deployments"), deployment("a")),
			c.post(t, c.path(groupVersion, "widgets"), widget(groupVersion, "a")),
			c.patch(t, applyPatch, c.path(groupVersion, "widgets", "a")+"?fieldManager=a", widget(groupVersion, "a")),
			c.post(t, c.path("v1", "configmaps")+"?dryRun=All", configMap("a", nil)),
		} {
			a.forbidden(t, "unable to create new content in namespace "+c.namespace+" because it is being terminated")
			equal(t, a.value(t, "details", "causes"), []any{map[string]any{"reason": "NamespaceTerminating", "field": "metadata.namespace",
				"message": "namespace " + c.namespace + " is being terminated"}})
		}
		c.patch(t, mergePatch, c.path("v1", "configmaps", "held"), `{"data":{"a":"b"}}`).ok(t)
		c.setFinalizers(t, c.path("v1", "configmaps", "held")).ok(t)
		c.gone(t, namespace)
	}},
	{"a namespace goes when the subresource finalize takes its last finalizer, and not before", func(t *testing.T, c *cluster) {
		name := c.namespace + "-own"
		path := c.global("v1", "namespaces", name)
		object := manifest("{apiVersion: v1, kind: Namespace, metadata: {name: %s, finalizers: [example.com/one]}, spec: {finalizers: [example.com/two]}}", name)
		created := c.post(t, c.global("v1", "namespaces"), object).created(t)
		equal(t, created.value(t, "spec", "finalizers"), []any{"example.com/two", "kubernetes"})
		c.delete(t, path).ok(t)
		eventually(t, "the controller has done its part", func() bool {
			left, _ := c.get(t, path).ok(t).value(t, "spec", "finalizers").([]any)
			return len(left) == 1 && left[0] == "example.com/two"
		})
		stuck := c.get(t, path).object(t)
		// A PUT of the namespace itself leaves them.
		kept := c.put(t, path, with(stuck, []string{}, "spec", "finalizers")).ok(t)
		equal(t, kept.value(t, "spec", "finalizers"), []any{"example.com/two"})
		c.put(t, path+"/finalize", with(kept.object(t), []string{}, "spec", "finalizers")).ok(t)
		c.get(t, path).ok(t)
		c.setFinalizers(t, path).ok(t)
		c.gone(t, path)
	}},
	{"the namespaces default, kube-system and kube-public can't be deleted", func(t *testing.T, c *cluster) {
		for _, name := range []string{"default", "kube-system", "kube-public"} {
			c.delete(t, c.global("v1", "namespaces", name)).forbidden(t,
				`namespaces "`+name+`" is forbidden: this namespace may not be deleted`)
		}
	}},
	{"a definition that is deleted takes its objects with it, and is served until the last is gone", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		group := strings.TrimSuffix(groupVersion, "/v1")
		widgets, definition := c.path(groupVersion, "widgets"), c.global("apiextensions.k8s.io/v1",
			"customresourcedefinitions", "widgets."+group)
		c.post(t, widgets, widget(groupVersion, "a")).created(t)
		c.post(t, widgets, with(widget(groupVersion, "held"), []string{"example.com/one"}, "metadata", "finalizers")).created(t)
		a := c.delete(t, definition).ok(t)
		equal(t, a.value(t, "metadata", "finalizers"), []any{"customresourcecleanup.apiextensions.k8s.io"})
		c.gone(t, widgets+"/a")
		eventually(t, "the definition's condition says that it is terminating", func() bool {
			list, _ := c.get(t, definition).ok(t).value(t, "status", "conditions").([]any)
			for _, item := range list {
				if condition := item.(map[string]any); condition["type"] == "Terminating" && condition["status"] == "True" {
					return true
				}
			}
			return false
		})
		eventually(t, "no objects are created any more", func() bool {
			return c.post(t, widgets, widget(groupVersion, "b")).want(t, http.StatusCreated,
				http.StatusForbidden).Code == http.StatusForbidden
		})
		c.post(t, widgets, widget(groupVersion, "c")).forbidden(t,
			"create not allowed while custom resource definition is terminating")
		c.setFinalizers(t, widgets+"/held").ok(t)
		c.gone(t, definition)
		c.gone(t, widgets)
	}},
}
