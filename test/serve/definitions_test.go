package serve

import (
	"fmt"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sqube/sqube/test/harness"
	"github.com/sqube/sqube/test/harness/sqube"
)

var inUseMetric = regexp.MustCompile(`(?m)^sqube_custom_resources_in_use (\S+)$`)

// TestDefinitionsAreNotCompiledAtAStart restarts a server that has definitions, one with an object. No schema is in memory until a client
// asks for such objects, though the garbage collector knows them.
func TestDefinitionsAreNotCompiledAtAStart(t *testing.T) {
	t.Parallel()
	s := serve(t, nil)
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	harness.Must(t, err)
	config.QPS = -1
	c, definitions, objects := client(t, s.Kubeconfig), clientset.NewForConfigOrDie(config), dynamic.NewForConfigOrDie(config)
	for _, name := range []string{"full", "empty"} {
		_, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), plain(name), metav1.CreateOptions{})
		harness.Must(t, err)
	}
	owner := func(name string) *corev1.ConfigMap {
		made, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		harness.Must(t, err)
		return made
	}
	owned := func(by *corev1.ConfigMap) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: by.Name, UID: by.UID}}}
	}
	secrets := c.CoreV1().Secrets("default")
	_, err = secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: owned(owner("of-secret"))}, metav1.CreateOptions{})
	harness.Must(t, err)
	full := objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "fulls"}).Namespace("default")
	meta := owned(owner("of-custom"))
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "full"}}
	object.SetName(meta.Name)
	object.SetOwnerReferences(meta.OwnerReferences)
	harness.Retry(t, "an object can be created", func() error {
		_, err := full.Create(t.Context(), object, metav1.CreateOptions{})
		return err
	})
	s.Stop(t)

	s.Start(t)
	inUse := func() string {
		found := inUseMetric.FindStringSubmatch(sqube.Metrics(t, c))
		if found == nil {
			t.Fatal("/metrics does not tell how many definitions are in use")
		}
		return found[1]
	}
	gone := func(of string, get func() error) {
		harness.Must(t, c.CoreV1().ConfigMaps("default").Delete(t.Context(), of, metav1.DeleteOptions{}))
		harness.Retry(t, "an object without its owner is collected", func() error {
			if err := get(); !apierrors.IsNotFound(err) {
				return fmt.Errorf("getting it returns %v", err)
			}
			return nil
		})
	}
	gone("of-secret", func() error { // so the collector runs
		_, err := secrets.Get(t.Context(), "owned", metav1.GetOptions{})
		return err
	})
	if n := inUse(); n != "0" {
		t.Errorf("%s definitions are in use after a start", n)
	}
	gone("of-custom", func() error {
		_, err := full.Get(t.Context(), "owned", metav1.GetOptions{})
		return err
	})
	if n := inUse(); n != "1" {
		t.Errorf("%s definitions are in use after requests for the objects of one", n)
	}
}

// plain is a definition whose objects may have any fields.
func plain(name string) *apiextensionsv1.CustomResourceDefinition {
	anything := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name + "s.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: name + "s", Singular: name, Kind: name, ListKind: name + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &anything},
				},
			}},
		},
	}
}
