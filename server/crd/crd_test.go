package crd_test

import (
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/yaml"

	"github.com/sqube/sqube/test/harness"
)

// widgets uses most features of definitions.
const widgets = `
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    selectableFields: [{jsonPath: .spec.color}]
    additionalPrinterColumns: [{name: Color, type: string, jsonPath: .spec.color}]
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            x-kubernetes-validations: [{rule: "self.replicas <= 5", message: too many}]
            properties:
              color: {type: string, default: red, enum: [red, green]}
              replicas: {type: integer, default: 1}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, size: {type: integer}}}
          status: {type: object, properties: {replicas: {type: integer}}}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

var widgetsV1 = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	o := new(T)
	harness.Must(t, yaml.UnmarshalStrict([]byte(text), o))
	return o
}

func widget(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// TestSelectableFieldGetsDefault selects an object that was written before its definition got a default for the field.
func TestSelectableFieldGetsDefault(t *testing.T) {
	s := start(t)
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, strings.Replace(widgets, "default: red, ", "", 1)))
	objects := s.objects.Resource(widgetsV1).Namespace("default")
	_, err := objects.Create(t.Context(), widget("one", map[string]any{"replicas": int64(1)}), metav1.CreateOptions{})
	harness.Must(t, err)
	names := func(selector string) string {
		list, err := objects.List(t.Context(), metav1.ListOptions{FieldSelector: selector})
		harness.Must(t, err)
		var names []string
		for _, item := range list.Items {
			names = append(names, item.GetName())
		}
		return strings.Join(names, " ")
	}
	if got := names("spec.color=") + ";" + names("spec.color=red"); got != "one;" {
		t.Errorf("before: %q", got)
	}
	_, err = s.definitions.ApiextensionsV1().CustomResourceDefinitions().Patch(t.Context(), "widgets.example.com", types.JSONPatchType,
		[]byte(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color/default","value":"red"}]`),
		metav1.PatchOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "the default is set", func() bool {
		one, err := objects.Get(t.Context(), "one", metav1.GetOptions{})
		harness.Must(t, err)
		color, _, _ := unstructured.NestedString(one.Object, "spec", "color")
		return color == "red"
	})
	if got := names("spec.color=") + ";" + names("spec.color=red"); got != ";one" {
		t.Errorf("after: %q", got)
	}
	events, err := objects.Watch(t.Context(), metav1.ListOptions{FieldSelector: "spec.color=red"})
	harness.Must(t, err)
	defer events.Stop()
	select {
	case e := <-events.ResultChan():
		if e.Type != watch.Added {
			t.Errorf("watch got %v", e)
		}
	case <-time.After(20 * time.Second):
		t.Error("watch got nothing")
	}
}

// get reads a path with the given Accept header.
func (s *server) get(t *testing.T, path, accept string) []byte {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(s.config)
	harness.Must(t, err)
	body, err := client.RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).Do(t.Context()).Raw()
	harness.Must(t, err)
	return body
}

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
