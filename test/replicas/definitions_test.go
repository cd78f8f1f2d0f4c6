package replicas

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/sqube/sqube/test/harness"
)

// defineElsewhere creates definitions. As soon as one server says that one is established, each server has to serve its resource.
func defineElsewhere(t *testing.T, replicas []replica) {
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	clients := make([]dynamic.Interface, len(replicas))
	for i, r := range replicas {
		var err error
		clients[i], err = dynamic.NewForConfig(r.Config(t))
		harness.Must(t, err)
	}
	for i := range 6 {
		here, there, third := clients[i%3], clients[(i+1)%3], clients[(i+2)%3]
		plural := fmt.Sprintf("things%d", i)
		definition := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + ".example.com"},
			"spec": map[string]any{
				"group": "example.com", "scope": "Cluster", "names": map[string]any{"plural": plural, "kind": fmt.Sprint("Thing", i)},
				"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
					"openAPIV3Schema": map[string]any{"type": "object"},
				}}},
			},
		}}
		_, err := here.Resource(definitions).Create(t.Context(), definition, metav1.CreateOptions{})
		harness.Must(t, err)
		harness.Eventually(t, plural+" are established", func() bool {
			stored, err := here.Resource(definitions).Get(t.Context(), definition.GetName(), metav1.GetOptions{})
			harness.Must(t, err)
			conditions, _, _ := unstructured.NestedSlice(stored.Object, "status", "conditions")
			for _, c := range conditions {
				if c := c.(map[string]any); c["type"] == "Established" && c["status"] == "True" {
					return true
				}
			}
			return false
		})
		things := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: plural}
		thing := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": fmt.Sprint("Thing", i), "metadata": map[string]any{"name": "one"},
		}}
		if _, err := there.Resource(things).Create(t.Context(), thing, metav1.CreateOptions{}); err != nil {
			t.Errorf("create on another server: %v", err)
		}
		if _, err := third.Resource(things).Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
			t.Errorf("get from a third: %v", err)
		}
	}
}
