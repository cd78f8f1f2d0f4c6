package concepts

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

var partialMetadata = []promise{
	{"an object can be received without all but its metadata, in both versions, also of custom resources", func(t *testing.T, c *cluster) {
		for path, created := range c.labelledPair(t) {
			for _, version := range []string{"v1", "v1beta1"} {
				a := c.getAs(t, asMetadata(runtime.ContentTypeJSON, version), path+"/a").want(t, http.StatusOK)
				equal(t, []string{a.text(t, "kind"), a.text(t, "apiVersion"), a.Header.Get("Content-Type")}, []string{"PartialObjectMetadata", "meta.k8s.io/" + version, "application/json"})
				equal(t, a.value(t, "metadata"), created.value(t, "metadata"))
				equal(t, len(a.object(t)), 3)
			}
		}
	}},
	{"a list of metadata has kind and version of each item, and the list's own metadata", func(t *testing.T, c *cluster) {
		for path, created := range c.labelledPair(t) {
			for _, version := range []string{"v1", "v1beta1"} {
				list := c.getAs(t, asMetadataList(runtime.ContentTypeJSON, version), path+"?limit=1").want(t, http.StatusOK)
				equal(t, []string{list.text(t, "kind"), list.text(t, "apiVersion")}, []string{"PartialObjectMetadataList", "meta.k8s.io/" + version})
				item := list.value(t, "items").([]any)[0].(map[string]any)
				equal(t, item, map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/" + version, "metadata": created.value(t, "metadata")})
				equal(t, list.value(t, "metadata", "remainingItemCount"), any(1.0))
				equal(t, c.next(t, path+"?", list).names(t), []string{"b"})
				if list.version(t) == "" {
					t.Error("the list has no resourceVersion")
				}
			}
		}
	}},
	{"client-go's metadata client reads any resource", func(t *testing.T, c *cluster) {
		client, err := metadata.NewForConfig(c.config)
		if err != nil {
			t.Fatal(err)
		}
		c.labelledPair(t)
		for _, resource := range []schema.GroupVersionResource{
			{Version: "v1", Resource: "secrets"}, {Group: c.namespace + ".example.com", Version: "v1", Resource: "widgets"},
		} {
			got, err := client.Resource(resource).Namespace(c.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "l=b"})
			if err != nil || len(got.Items) != 1 || got.Items[0].Name != "b" {
				t.Errorf("it lists %v of %v, %v", got, resource, err)
			}
		}
	}},
	{"events of watches come as metadata too", func(t *testing.T, c *cluster) {
		version := c.get(t, c.path("v1", "secrets")).version(t)
		a := c.send(t, http.MethodPost, c.path("v1", "secrets"), header{"Accept", asMetadata(runtime.ContentTypeJSON, "v1")}, secret("a")).want(t, http.StatusCreated)
		watch := c.watchAs(t, 1, header{"Accept", asMetadata(runtime.ContentTypeJSON, "v1")}, c.path("v1", "secrets")+"?watch=true&resourceVersion="+version)
		equal(t, watch.value(t, "object"), any(a.object(t)))
	}},
}

// labelledPair creates two objects, a and b, of a built-in and of a custom resource, and returns the first of each by the
// path of its collection.
func (c *cluster) labelledPair(t *testing.T) map[string]answer {
	t.Helper()
	version := c.widgets(t, anySchema)
	pairs := map[string]answer{}
	for path, object := range map[string]map[string]any{c.path("v1", "secrets"): secret("a"), c.path(version, "widgets"): widget(version, "a")} {
		pairs[path] = c.post(t, path, with(object, "a", "metadata", "labels", "l")).want(t, http.StatusCreated)
		c.post(t, path, with(with(object, "b", "metadata", "name"), "b", "metadata", "labels", "l")).want(t, http.StatusCreated)
	}
	return pairs
}
