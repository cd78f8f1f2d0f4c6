package controlplane

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sqube/sqube/test/harness"
)

// collects defines a kind while the controllers and the scheduler run, and checks that the garbage collector hears of it.
func collects(t *testing.T, config *rest.Config) {
	t.Helper()
	_, err := clientset.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Singular: "widget", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}},
		},
	}, metav1.CreateOptions{})
	harness.Must(t, err)
	widgets := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace("default")
	widget := func(name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
		o.SetName(name)
		o.SetOwnerReferences(owners)
		return o
	}
	var owner *unstructured.Unstructured
	harness.Eventually(t, "there are widgets", func() (ok bool) {
		owner, err = widgets.Create(t.Context(), widget("owner"), metav1.CreateOptions{})
		return err == nil
	})
	_, err = widgets.Create(t.Context(), widget("dependent", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Widget", Name: "owner", UID: owner.GetUID()}), metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Must(t, widgets.Delete(t.Context(), "owner", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
	harness.Eventually(t, "the dependent is deleted", func() bool {
		_, err := widgets.Get(t.Context(), "dependent", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
