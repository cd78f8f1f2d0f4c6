package crd_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
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

func TestObjects(t *testing.T) {
	s := start(t)
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))
	objects := s.objects.Resource(widgetsV1).Namespace("default")

	events, err := objects.Watch(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	defer events.Stop()

	made, err := objects.Create(t.Context(), widget("one", map[string]any{"unknown": "field"}), metav1.CreateOptions{})
	harness.Must(t, err)
	if spec := made.Object["spec"].(map[string]any); spec["color"] != "red" || spec["unknown"] != nil {
		t.Errorf("not defaulted or not pruned: %v", spec)
	}
	if e := <-events.ResultChan(); e.Type != watch.Added {
		t.Errorf("watch got %v", e)
	}

	for name, spec := range map[string]map[string]any{
		"too many":                    {"replicas": int64(9)},
		"Unsupported value: \"blue\"": {"color": "blue"},
		"must be of type integer":     {"replicas": "many"},
	} {
		if _, err := objects.Create(t.Context(), widget("bad", spec), metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("want invalid with %q, got %v", name, err)
		}
	}

	_, err = objects.Create(t.Context(), widget("two", map[string]any{"color": "green"}), metav1.CreateOptions{})
	harness.Must(t, err)
	list, err := objects.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.color=green"})
	harness.Must(t, err)
	if len(list.Items) != 1 || list.Items[0].GetName() != "two" {
		t.Errorf("selected by field: %v", list.Items)
	}
	old, err := s.objects.Resource(widgetsV1.GroupResource().WithVersion("v1beta1")).Namespace("default").Get(t.Context(), "two", metav1.GetOptions{})
	harness.Must(t, err)
	if old.GetAPIVersion() != "example.com/v1beta1" {
		t.Errorf("converted to %s", old.GetAPIVersion())
	}
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

func TestSubresources(t *testing.T) {
	s := start(t)
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))
	objects := s.objects.Resource(widgetsV1).Namespace("default")
	_, err := objects.Create(t.Context(), widget("one", map[string]any{}), metav1.CreateOptions{})
	harness.Must(t, err)

	scaled, err := objects.Patch(t.Context(), "one", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{}, "scale")
	harness.Must(t, err)
	if scaled.GetKind() != "Scale" {
		t.Errorf("scale is a %s", scaled.GetKind())
	}
	changed, err := objects.Patch(t.Context(), "one", types.MergePatchType,
		[]byte(`{"spec":{"color":"green"},"status":{"replicas":3}}`), metav1.PatchOptions{}, "status")
	harness.Must(t, err)
	spec, status := changed.Object["spec"].(map[string]any), changed.Object["status"].(map[string]any)
	if spec["color"] != "red" || spec["replicas"] != int64(3) || status["replicas"] != int64(3) {
		t.Errorf("after scale and status: %v, %v", spec, status)
	}
}

func TestServerSideApplyMergesBySchema(t *testing.T) {
	s := start(t)
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))
	objects := s.objects.Resource(widgetsV1).Namespace("default")
	for manager, part := range map[string]string{"a": "left", "b": "right"} {
		parts := map[string]any{"parts": []any{map[string]any{"name": part}}}
		_, err := objects.Apply(t.Context(), "one", widget("one", parts), metav1.ApplyOptions{FieldManager: manager})
		harness.Must(t, err)
	}
	made, err := objects.Get(t.Context(), "one", metav1.GetOptions{})
	harness.Must(t, err)
	if parts, _, _ := unstructured.NestedSlice(made.Object, "spec", "parts"); len(parts) != 2 {
		t.Errorf("two managers' items of a list map became %v", parts)
	}
}

func TestTable(t *testing.T) {
	s := start(t)
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))
	_, err := s.objects.Resource(widgetsV1).Namespace("default").Create(t.Context(), widget("one", map[string]any{}), metav1.CreateOptions{})
	harness.Must(t, err)
	table := &metav1.Table{}
	harness.Must(t, json.Unmarshal(s.get(t, "/apis/example.com/v1/widgets", "application/json;as=Table;v=v1;g=meta.k8s.io"), table))
	if len(table.ColumnDefinitions) != 2 || table.ColumnDefinitions[1].Name != "Color" || table.Rows[0].Cells[1] != "red" {
		t.Errorf("%+v", table)
	}
}

// get reads a path with the given Accept header.
func (s *server) get(t *testing.T, path, accept string) []byte {
	t.Helper()
	body, err := s.tryGet(t, path, accept)
	harness.Must(t, err)
	return body
}

func (s *server) tryGet(t *testing.T, path, accept string) ([]byte, error) {
	t.Helper()
	c := rest.CopyConfig(s.config)
	client, err := discovery.NewDiscoveryClientForConfig(c)
	harness.Must(t, err)
	return client.RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).Do(t.Context()).Raw()
}

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func TestDiscovery(t *testing.T) {
	s := start(t)
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))

	list := &metav1.APIResourceList{}
	harness.Must(t, json.Unmarshal(s.get(t, "/apis/example.com/v1", "application/json"), list))
	var names []string
	for _, r := range list.APIResources {
		names = append(names, r.Name+" "+r.Group+" "+r.Kind)
	}
	if got := strings.Join(names, ","); got != "widgets  Widget,widgets/status  Widget,widgets/scale autoscaling Scale" {
		t.Errorf("resources: %s", got)
	}
	if r := list.APIResources[0]; r.StorageVersionHash == "" || r.ShortNames[0] != "wd" || r.Categories[0] != "all" || len(r.Verbs) != 8 {
		t.Errorf("resource: %+v", r)
	}

	all := &apidiscoveryv2.APIGroupDiscoveryList{}
	harness.Eventually(t, "aggregated discovery has the group", func() bool {
		harness.Must(t, json.Unmarshal(s.get(t, "/apis", aggregatedType), all))
		last := all.Items[len(all.Items)-1] // its versions are published one after the other
		return last.Name == "example.com" && len(last.Versions) == 2
	})
	versions := all.Items[len(all.Items)-1].Versions
	if len(versions) != 2 || versions[0].Version != "v1" || len(versions[0].Resources[0].Subresources) != 2 || len(versions[1].Resources[0].Subresources) != 0 {
		t.Errorf("versions: %+v", versions)
	}
}

func TestDeletionLeavesNothing(t *testing.T) {
	s := start(t)
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))
	objects := s.objects.Resource(widgetsV1).Namespace("default")
	_, err := objects.Create(t.Context(), widget("one", map[string]any{}), metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Must(t, s.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}))
	harness.Eventually(t, "the definition is gone", func() bool {
		_, err := s.Informer().Lister().Get("widgets.example.com")
		return apierrors.IsNotFound(err)
	})
	harness.Eventually(t, "discovery and OpenAPI have dropped the group", func() bool {
		return !strings.Contains(string(s.get(t, "/apis", aggregatedType)), "example.com") &&
			!strings.Contains(string(s.get(t, "/openapi/v3", "application/json")), "example.com")
	})
	for _, path := range []string{"/apis/example.com/v1", "/apis/example.com/v1/widgets"} {
		if _, err := s.tryGet(t, path, "application/json"); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))
	list, err := objects.List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	if len(list.Items) > 0 {
		t.Errorf("objects outlived their definition: %v", list.Items)
	}
}

func TestWatchEndsWithItsDefinition(t *testing.T) {
	s := start(t)
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))
	objects := s.objects.Resource(widgetsV1).Namespace("default")
	_, err := objects.Create(t.Context(), widget("one", map[string]any{}), metav1.CreateOptions{})
	harness.Must(t, err)
	events, err := objects.Watch(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	defer events.Stop()
	harness.Must(t, s.definitions.ApiextensionsV1().CustomResourceDefinitions().Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}))
	var got []watch.EventType
	for end := time.After(20 * time.Second); ; {
		select {
		case event, open := <-events.ResultChan():
			if open {
				got = append(got, event.Type)
				continue
			}
			if len(got) == 0 || got[len(got)-1] != watch.Deleted {
				t.Errorf("events before the end: %v", got)
			}
			return
		case <-end:
			t.Fatal("the watch has not ended")
		}
	}
}

func TestOpenAPIHasCustomResources(t *testing.T) {
	s := start(t)
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))
	if index := s.get(t, "/openapi/v3", "application/json"); !strings.Contains(string(index), `"apis/example.com/v1beta1"`) {
		t.Errorf("index: %s", index)
	}
	for _, path := range []string{"/openapi/v3/apis/example.com/v1", "/openapi/v2"} {
		if text := s.get(t, path, "application/json"); !strings.Contains(string(text), `com.example.v1.WidgetList"`) {
			t.Errorf("%s lacks WidgetList", path)
		}
	}
}

// colours converts between v1, which has spec.color, and any other version, which has spec.colour.
func colours(w http.ResponseWriter, r *http.Request) {
	review := &apiextensionsv1.ConversionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(raw.Raw); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		from, to := "colour", "color"
		if review.Request.DesiredAPIVersion != "example.com/v1" {
			from, to = to, from
		}
		spec := o.Object["spec"].(map[string]any)
		spec[to] = spec[from]
		delete(spec, from)
		o.SetAPIVersion(review.Request.DesiredAPIVersion)
		review.Response.ConvertedObjects = append(review.Response.ConvertedObjects, runtime.RawExtension{Object: o})
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func TestConversionByWebhook(t *testing.T) {
	converter := httptest.NewTLSServer(http.HandlerFunc(colours))
	defer converter.Close()
	s := start(t)
	d := parse[apiextensionsv1.CustomResourceDefinition](t, widgets)
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1"},
			ClientConfig: &apiextensionsv1.WebhookClientConfig{
				URL:      ptr.To(converter.URL),
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: converter.Certificate().Raw}),
			},
		},
	}
	s.define(t, d)
	_, err := s.objects.Resource(widgetsV1).Namespace("default").Create(t.Context(), widget("one", map[string]any{"color": "green"}), metav1.CreateOptions{})
	harness.Must(t, err)
	older := s.objects.Resource(widgetsV1.GroupResource().WithVersion("v1beta1")).Namespace("default")
	list, err := older.List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	if colour, _, _ := unstructured.NestedString(list.Items[0].Object, "spec", "colour"); colour != "green" {
		t.Errorf("converted to %v", list.Items[0].Object)
	}
	events, err := older.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	harness.Must(t, err)
	defer events.Stop()
	event := <-events.ResultChan()
	if o, ok := event.Object.(*unstructured.Unstructured); !ok || o.GetAPIVersion() != "example.com/v1beta1" {
		t.Errorf("watch got %v", event)
	}
}
