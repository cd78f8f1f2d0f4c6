package concepts

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
)

// The verb deletecollection: a delete of all objects that a list would have.
func TestDeleteCollection(t *testing.T) {
	prove(t, nil, collectionDeletions...)
}

// few makes the ConfigMaps a, b and c, of which the first two have the label some=x, and returns their path.
func (c *cluster) few(t *testing.T) string {
	t.Helper()
	path := c.path("v1", "configmaps")
	for _, name := range []string{"a", "b", "c"} {
		object := configMap(name, nil)
		if name != "c" {
			object = with(object, "x", "metadata", "labels", "some")
		}
		c.post(t, path, object).created(t)
	}
	return path
}

// left are the names of what is there, but for what a controller puts into every namespace.
func (c *cluster) left(t *testing.T, path string) []string {
	t.Helper()
	return withoutCA(c.get(t, path).ok(t).names(t))
}

// withoutCA are the names but for that.
func withoutCA(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return name == "kube-root-ca.crt" })
}

var collectionDeletions = []promise{
	{"a delete of a collection is answered with the list of what was deleted", func(t *testing.T, c *cluster) {
		path := c.few(t)
		a := c.delete(t, path).ok(t)
		equal(t, a.text(t, "kind"), "ConfigMapList")
		equal(t, withoutCA(a.names(t)), []string{"a", "b", "c"})
		equal(t, c.left(t, path), []string{})
	}},
	{"a delete of an empty collection is answered with an empty list", func(t *testing.T, c *cluster) {
		a := c.delete(t, c.path("v1", "secrets")).ok(t)
		equal(t, a.text(t, "kind"), "SecretList")
		equal(t, a.names(t), []string{})
	}},
	{"selectors of labels and of fields say what is deleted", func(t *testing.T, c *cluster) {
		path := c.few(t)
		c.delete(t, path+"?fieldSelector="+url.QueryEscape("metadata.name=b")).ok(t)
		equal(t, c.left(t, path), []string{"a", "c"})
		c.delete(t, path+"?labelSelector="+url.QueryEscape("some in (y)")).ok(t)
		equal(t, c.left(t, path), []string{"a", "c"})
		equal(t, c.delete(t, path+"?labelSelector=some=x").ok(t).names(t), []string{"a"})
		equal(t, c.left(t, path), []string{"c"})
		c.delete(t, path+"?fieldSelector=metadata.name!=kube-root-ca.crt&labelSelector="+url.QueryEscape("!some")).ok(t)
		equal(t, c.left(t, path), []string{})
	}},
	{"pods are selected by their node and phase", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		path := c.path("v1", "pods")
		c.post(t, path, pod("a")).created(t)
		c.post(t, path, with(pod("b"), "other", "spec", "nodeName")).created(t)
		c.delete(t, path+"?gracePeriodSeconds=0&fieldSelector=spec.nodeName=other,status.phase=Pending").ok(t)
		equal(t, c.left(t, path), []string{"a"})
	}},
	{"a selector that can't be read, or a field that can't be selected by, is 400, and nothing is deleted", func(t *testing.T, c *cluster) {
		path := c.few(t)
		for _, query := range []string{"labelSelector=a%20b", "fieldSelector=a", "fieldSelector=data.a%3D1", "limit=many"} {
			c.delete(t, path+"?"+query).badRequest(t)
		}
		equal(t, c.left(t, path), []string{"a", "b", "c"})
	}},
	{"with a limit only the first page is deleted, and continue goes on with the next", func(t *testing.T, c *cluster) {
		path := c.few(t)
		first := c.delete(t, path+"?limit=2").ok(t)
		equal(t, first.names(t), []string{"a", "b"})
		equal(t, c.left(t, path), []string{"c"})
		second := c.delete(t, path+"?limit=2&continue="+url.QueryEscape(first.text(t, "metadata", "continue"))).ok(t)
		equal(t, withoutCA(second.names(t)), []string{"c"})
		equal(t, c.left(t, path), []string{})
	}},
	{"a collection of many pages is deleted as a whole", func(t *testing.T, c *cluster) {
		groupVersion := c.widgets(t, anySchema)
		path := c.path(groupVersion, "widgets")
		var want []string
		for i := range 30 {
			want = append(want, fmt.Sprintf("w-%02d", i))
			c.post(t, path, widget(groupVersion, want[i])).created(t)
		}
		equal(t, c.delete(t, path).ok(t).names(t), want)
		equal(t, c.left(t, path), []string{})
	}},
	{"of what has finalizers the deletion begins", func(t *testing.T, c *cluster) {
		path := c.few(t)
		c.setFinalizers(t, path+"/b", "example.com/one").ok(t)
		c.delete(t, path).ok(t)
		equal(t, c.left(t, path), []string{"b"})
		if c.get(t, path+"/b").value(t, "metadata", "deletionTimestamp") == nil {
			t.Error("b is active")
		}
		c.setFinalizers(t, path+"/b").ok(t)
		equal(t, c.left(t, path), []string{})
	}},
	{"the options in the body are those of a delete of each", func(t *testing.T, c *cluster) {
		c.serviceAccount(t)
		pods := c.path("v1", "pods")
		for _, name := range []string{"a", "b"} {
			c.post(t, pods, pod(name)).created(t)
		}
		c.send(t, http.MethodDelete, pods, nil, `{"gracePeriodSeconds":7}`).ok(t)
		for _, name := range []string{"a", "b"} {
			equal(t, c.get(t, pods+"/"+name).ok(t).value(t, "metadata", "deletionGracePeriodSeconds"), 7.0)
		}
		c.send(t, http.MethodDelete, pods, nil, `{"gracePeriodSeconds":0,"dryRun":["All"]}`).ok(t)
		equal(t, c.left(t, pods), []string{"a", "b"})
		c.send(t, http.MethodDelete, pods, nil, `{"gracePeriodSeconds":0}`).ok(t)
		equal(t, c.left(t, pods), []string{})
	}},
	{"preconditions hold for each, so that a collection is deleted up to what does not meet them", func(t *testing.T, c *cluster) {
		path := c.few(t)
		uid := c.get(t, path+"/a").text(t, "metadata", "uid")
		options := map[string]any{"preconditions": map[string]any{"uid": uid}}
		c.send(t, http.MethodDelete, path, nil, options).conflict(t)
		c.get(t, path+"/c").ok(t)
		c.send(t, http.MethodDelete, path+"?fieldSelector=metadata.name=c", nil, options).conflict(t)
		c.get(t, path+"/c").ok(t)
	}},
	{"a dry run deletes nothing and is answered with what would be", func(t *testing.T, c *cluster) {
		path := c.few(t)
		before := c.get(t, path+"?labelSelector=some")
		a := c.delete(t, path+"?dryRun=All&labelSelector=some").ok(t)
		equal(t, a.names(t), []string{"a", "b"})
		equal(t, c.get(t, path+"?labelSelector=some").value(t, "items"), before.value(t, "items"))
	}},
	{"a collection is of one namespace, or of the cluster, and namespaces are not deleted as one", func(t *testing.T, c *cluster) {
		path := c.few(t)
		for _, other := range []string{"/api/v1/configmaps", "/api/v1/namespaces"} {
			c.delete(t, other).refused(t, http.StatusMethodNotAllowed, "MethodNotAllowed")
		}
		equal(t, c.left(t, path), []string{"a", "b", "c"})
		class := manifest("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: %[1]s, labels: {of: %[1]s}}, value: 1}", c.namespace)
		classes := c.global("scheduling.k8s.io/v1", "priorityclasses")
		c.post(t, classes, class).created(t)
		equal(t, c.delete(t, classes+"?labelSelector=of="+c.namespace).ok(t).names(t), []string{c.namespace})
	}},
	{"watchers see the end of each object", func(t *testing.T, c *cluster) {
		path := c.few(t)
		from := c.get(t, path).version(t)
		watch := c.watch(t, path+"?watch=true&labelSelector=some&resourceVersion="+from)
		c.delete(t, path+"?labelSelector=some").ok(t)
		seen := []string{watch.next(t).Type, watch.next(t).Type}
		equal(t, seen, []string{"DELETED", "DELETED"})
	}},
}
