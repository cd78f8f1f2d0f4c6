package tables

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/sqube/sqube/test/concepts/kit"
)

var partialMetadata = []kit.Promise{
	{Statement: "an object can be requested with only its metadata, in both versions, also for custom resources", Proof: func(t *testing.T, c *kit.Cluster) {
		for path, created := range labelledPair(t, c) {
			for _, version := range []string{"v1", "v1beta1"} {
				a := c.GetAs(t, kit.AsMetadata(runtime.ContentTypeJSON, version), path+"/a").OK(t)
				kit.Equal(t, []string{a.Text(t, "kind"), a.Text(t, "apiVersion"), a.Header.Get("Content-Type")}, []string{"PartialObjectMetadata", "meta.k8s.io/" + version, "application/json"})
				kit.Equal(t, a.Value(t, "metadata"), created.Value(t, "metadata"))
				kit.Equal(t, len(a.Object(t)), 3)
			}
		}
	}},
	{Statement: "a list of metadata has kind and version of each item, and the list's own metadata", Proof: func(t *testing.T, c *kit.Cluster) {
		for path, created := range labelledPair(t, c) {
			for _, version := range []string{"v1", "v1beta1"} {
				list := c.GetAs(t, kit.AsMetadataList(runtime.ContentTypeJSON, version), path+"?limit=1").OK(t)
				kit.Equal(t, []string{list.Text(t, "kind"), list.Text(t, "apiVersion")}, []string{"PartialObjectMetadataList", "meta.k8s.io/" + version})
				item := list.Value(t, "items").([]any)[0].(map[string]any)
				kit.Equal(t, item, map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/" + version, "metadata": created.Value(t, "metadata")})
				kit.Equal(t, list.Value(t, "metadata", "remainingItemCount"), any(1.0))
				kit.Equal(t, c.NextPage(t, path+"?", list).Names(t), []string{"b"})
				if list.ResourceVersion(t) == "" {
					t.Error("the list has no resourceVersion")
				}
			}
		}
	}},
	{Statement: "annotations that stand for fields of older versions are left out of a list of metadata, as of everything else", Proof: func(t *testing.T, c *kit.Cluster) {
		pod := `{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`
		for resource, object := range map[string]string{
			"daemonsets":  `{"metadata":{"name":"a","annotations":{"kept":"x","deprecated.daemonset.template.generation":"7"}},"spec":` + pod + `}`,
			"deployments": `{"metadata":{"name":"a","annotations":{"kept":"x","deprecated.deployment.rollback.to":"7"}},"spec":` + pod + `}`,
			"horizontalpodautoscalers": `{"metadata":{"name":"a","annotations":{"kept":"x","autoscaling.alpha.kubernetes.io/behavior":"{}"}},
				"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"a"}}}`,
		} {
			version := "apps/v1"
			if resource == "horizontalpodautoscalers" {
				version = "autoscaling/v2"
			}
			path := c.Path(version, resource)
			c.Post(t, path, json.RawMessage(object)).Created(t)
			one := c.GetAs(t, kit.AsMetadata(runtime.ContentTypeJSON, "v1"), path+"/a").OK(t)
			kit.Equal(t, one.Value(t, "metadata", "annotations"), any(map[string]any{"kept": "x"}))
			list := c.GetAs(t, kit.AsMetadataList(runtime.ContentTypeJSON, "v1"), path).OK(t)
			kit.Equal(t, list.Value(t, "items").([]any)[0].(map[string]any)["metadata"], one.Value(t, "metadata"))
		}
	}},
	{Statement: "client-go's metadata client reads any resource", Proof: func(t *testing.T, c *kit.Cluster) {
		client := kit.Must(metadata.NewForConfig(c.Config))(t)
		labelledPair(t, c)
		for _, resource := range []schema.GroupVersionResource{
			{Version: "v1", Resource: "secrets"}, {Group: c.Namespace + ".example.com", Version: "v1", Resource: "widgets"},
		} {
			got, err := client.Resource(resource).Namespace(c.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "l=b"})
			if err != nil || len(got.Items) != 1 || got.Items[0].Name != "b" {
				t.Errorf("it lists %v for %v, %v", got, resource, err)
			}
		}
	}},
}

// labelledPair creates two objects, a and b, of a built-in and of a custom resource, and returns the first of each by the
// path of its collection.
func labelledPair(t *testing.T, c *kit.Cluster) map[string]kit.Answer {
	t.Helper()
	version := c.DefineWidgets(t, kit.AnySchema)
	pairs := map[string]kit.Answer{}
	for path, object := range map[string]map[string]any{c.Path("v1", "secrets"): kit.Secret("a"), c.Path(version, "widgets"): kit.Widget(version, "a")} {
		pairs[path] = c.Post(t, path, kit.With(object, "a", "metadata", "labels", "l")).Created(t)
		c.Post(t, path, kit.With(kit.With(object, "b", "metadata", "name"), "b", "metadata", "labels", "l")).Created(t)
	}
	return pairs
}
