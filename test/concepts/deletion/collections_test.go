package deletion

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/sqube/sqube/test/concepts/kit"
)

// The verb deletecollection: deletion of all objects that a list would return.
// few creates the ConfigMaps a, b and c, the first two with the label some=x, and returns their path.
func few(t *testing.T, c *kit.Cluster) string {
	t.Helper()
	path := c.Path("v1", "configmaps")
	for _, name := range []string{"a", "b", "c"} {
		object := kit.ConfigMap(name, nil)
		if name != "c" {
			object = kit.With(object, "x", "metadata", "labels", "some")
		}
		c.Post(t, path, object).Created(t)
	}
	return path
}

// left returns the names of existing objects, except for those that a controller creates in every namespace.
func left(t *testing.T, c *kit.Cluster, path string) []string {
	t.Helper()
	return withoutCA(c.Get(t, path).OK(t).Names(t))
}

// withoutCA returns the names without that ConfigMap's.
func withoutCA(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return name == "kube-root-ca.crt" })
}

var collectionDeletions = []kit.Promise{
	{Statement: "deleting a collection returns the list of deleted objects", Proof: func(t *testing.T, c *kit.Cluster) {
		path := few(t, c)
		a := c.Delete(t, path).OK(t)
		kit.Equal(t, a.Text(t, "kind"), "ConfigMapList")
		kit.Equal(t, withoutCA(a.Names(t)), []string{"a", "b", "c"})
		kit.Equal(t, left(t, c, path), []string{})
	}},
	{Statement: "deleting an empty collection returns an empty list", Proof: func(t *testing.T, c *kit.Cluster) {
		a := c.Delete(t, c.Path("v1", "secrets")).OK(t)
		kit.Equal(t, a.Text(t, "kind"), "SecretList")
		kit.Equal(t, a.Names(t), []string{})
	}},
	{Statement: "label and field selectors select what is deleted", Proof: func(t *testing.T, c *kit.Cluster) {
		path := few(t, c)
		c.Delete(t, path+"?fieldSelector="+url.QueryEscape("metadata.name=b")).OK(t)
		kit.Equal(t, left(t, c, path), []string{"a", "c"})
		c.Delete(t, path+"?labelSelector="+url.QueryEscape("some in (y)")).OK(t)
		kit.Equal(t, left(t, c, path), []string{"a", "c"})
		kit.Equal(t, c.Delete(t, path+"?labelSelector=some=x").OK(t).Names(t), []string{"a"})
		kit.Equal(t, left(t, c, path), []string{"c"})
		c.Delete(t, path+"?fieldSelector=metadata.name!=kube-root-ca.crt&labelSelector="+url.QueryEscape("!some")).OK(t)
		kit.Equal(t, left(t, c, path), []string{})
	}},
	{Statement: "pods are selected by their node and phase", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		path := c.Path("v1", "pods")
		c.Post(t, path, kit.Pod("a")).Created(t)
		c.Post(t, path, kit.With(kit.Pod("b"), "other", "spec", "nodeName")).Created(t)
		c.Delete(t, path+"?gracePeriodSeconds=0&fieldSelector=spec.nodeName=other,status.phase=Pending").OK(t)
		kit.Equal(t, left(t, c, path), []string{"a"})
	}},
	{Statement: "an invalid selector, or an unsupported field, gets 400, and nothing is deleted", Proof: func(t *testing.T, c *kit.Cluster) {
		path := few(t, c)
		for _, query := range []string{"labelSelector=a%20b", "fieldSelector=a", "fieldSelector=data.a%3D1", "limit=many"} {
			c.Delete(t, path+"?"+query).BadRequest(t)
		}
		kit.Equal(t, left(t, c, path), []string{"a", "b", "c"})
	}},
	{Statement: "with a limit only the first page is deleted, and continue deletes the next", Proof: func(t *testing.T, c *kit.Cluster) {
		path := few(t, c)
		first := c.Delete(t, path+"?limit=2").OK(t)
		kit.Equal(t, first.Names(t), []string{"a", "b"})
		kit.Equal(t, left(t, c, path), []string{"c"})
		second := c.Delete(t, path+"?limit=2&continue="+url.QueryEscape(first.Text(t, "metadata", "continue"))).OK(t)
		kit.Equal(t, withoutCA(second.Names(t)), []string{"c"})
		kit.Equal(t, left(t, c, path), []string{})
	}},
	{Statement: "a collection of many pages is deleted as a whole", Proof: func(t *testing.T, c *kit.Cluster) {
		groupVersion := c.DefineWidgets(t, kit.AnySchema)
		path := c.Path(groupVersion, "widgets")
		var want []string
		for i := range 30 {
			want = append(want, fmt.Sprintf("w-%02d", i))
			c.Post(t, path, kit.Widget(groupVersion, want[i])).Created(t)
		}
		kit.Equal(t, c.Delete(t, path).OK(t).Names(t), want)
		kit.Equal(t, left(t, c, path), []string{})
	}},
	{Statement: "objects with finalizers are marked for deletion", Proof: func(t *testing.T, c *kit.Cluster) {
		path := few(t, c)
		c.SetFinalizers(t, path+"/b", "example.com/one").OK(t)
		c.Delete(t, path).OK(t)
		kit.Equal(t, left(t, c, path), []string{"b"})
		if c.Get(t, path+"/b").Value(t, "metadata", "deletionTimestamp") == nil {
			t.Error("b is active")
		}
		c.SetFinalizers(t, path+"/b").OK(t)
		kit.Equal(t, left(t, c, path), []string{})
	}},
	{Statement: "the options in the body apply to the deletion of each object", Proof: func(t *testing.T, c *kit.Cluster) {
		c.MakeDefaultServiceAccount(t)
		pods := c.Path("v1", "pods")
		for _, name := range []string{"a", "b"} {
			c.Post(t, pods, kit.Pod(name)).Created(t)
		}
		c.Send(t, http.MethodDelete, pods, nil, `{"gracePeriodSeconds":7}`).OK(t)
		for _, name := range []string{"a", "b"} {
			kit.Equal(t, c.Get(t, pods+"/"+name).OK(t).Value(t, "metadata", "deletionGracePeriodSeconds"), 7.0)
		}
		c.Send(t, http.MethodDelete, pods, nil, `{"gracePeriodSeconds":0,"dryRun":["All"]}`).OK(t)
		kit.Equal(t, left(t, c, pods), []string{"a", "b"})
		c.Send(t, http.MethodDelete, pods, nil, `{"gracePeriodSeconds":0}`).OK(t)
		kit.Equal(t, left(t, c, pods), []string{})
	}},
	{Statement: "preconditions apply to each object, so a collection is deleted up to the first that does not meet them", Proof: func(t *testing.T, c *kit.Cluster) {
		path := few(t, c)
		uid := c.Get(t, path+"/a").Text(t, "metadata", "uid")
		options := map[string]any{"preconditions": map[string]any{"uid": uid}}
		c.Send(t, http.MethodDelete, path, nil, options).Conflict(t)
		c.Get(t, path+"/c").OK(t)
		c.Send(t, http.MethodDelete, path+"?fieldSelector=metadata.name=c", nil, options).Conflict(t)
		c.Get(t, path+"/c").OK(t)
	}},
	{Statement: "a dry run deletes nothing and returns what would be deleted", Proof: func(t *testing.T, c *kit.Cluster) {
		path := few(t, c)
		before := c.Get(t, path+"?labelSelector=some")
		a := c.Delete(t, path+"?dryRun=All&labelSelector=some").OK(t)
		kit.Equal(t, a.Names(t), []string{"a", "b"})
		kit.Equal(t, c.Get(t, path+"?labelSelector=some").Value(t, "items"), before.Value(t, "items"))
	}},
	{Statement: "a collection is in one namespace or in the cluster, and namespaces can't be deleted as a collection", Proof: func(t *testing.T, c *kit.Cluster) {
		path := few(t, c)
		for _, other := range []string{"/api/v1/configmaps", "/api/v1/namespaces"} {
			c.Delete(t, other).Refused(t, http.StatusMethodNotAllowed, "MethodNotAllowed")
		}
		kit.Equal(t, left(t, c, path), []string{"a", "b", "c"})
		class := kit.Manifest("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: %[1]s, labels: {of: %[1]s}}, value: 1}", c.Namespace)
		classes := c.ClusterPath("scheduling.k8s.io/v1", "priorityclasses")
		c.Post(t, classes, class).Created(t)
		kit.Equal(t, c.Delete(t, classes+"?labelSelector=of="+c.Namespace).OK(t).Names(t), []string{c.Namespace})
	}},
	{Statement: "only a GET with the parameter watch is a watch, of custom resources too", Proof: func(t *testing.T, c *kit.Cluster) {
		version := c.DefineWidgets(t, "{type: object}")
		path := c.Path(version, "widgets")
		c.Post(t, path+"?fieldManager=watcher", kit.Widget(version, "a")).Created(t)
		kit.Equal(t, c.Delete(t, path+"?watch=true&fieldSelector=metadata.name=none").OK(t).Names(t), []string{})
		kit.Equal(t, c.Delete(t, path+"?watch=true").OK(t).Names(t), []string{"a"})
	}},
}
