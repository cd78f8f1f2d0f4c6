package crd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"

	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/decorate"
	"github.com/sqube/sqube/test/harness"
)

// gadgets is another definition.
const gadgets = `
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: gadgets, singular: gadget, kind: Gadget, listKind: GadgetList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

func TestSchemasAreReadOnFirstUse(t *testing.T) {
	s := start(t)
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, gadgets))
	for _, path := range []string{"/apis/example.com/v1", "/openapi/v3", "/openapi/v3/apis/example.com/v1", "/openapi/v2"} {
		s.get(t, path, "application/json")
	}
	if n := s.InUse(); n != 0 {
		t.Errorf("%d definitions are in use before the first request for their objects", n)
	}
	held, err := s.Informer().Lister().Get("widgets.example.com")
	harness.Must(t, err)
	if held.Spec.Versions[0].Schema != nil {
		t.Error("the informer holds schemas")
	}
	stored, err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), "widgets.example.com", metav1.GetOptions{})
	harness.Must(t, err)
	if stored.Spec.Versions[0].Schema == nil || len(stored.Spec.Versions[0].AdditionalPrinterColumns) != 1 {
		t.Errorf("the controllers have changed the definition: %+v", stored.Spec.Versions[0])
	}
	_, err = s.objects.Resource(widgetsV1).Namespace("default").List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	if n := s.InUse(); n != 1 {
		t.Errorf("%d definitions are in use after a list of the objects of one", n)
	}
}

func TestSchemasAreGivenUpWhenUnused(t *testing.T) {
	s := start(t, func(c *crd.Config) { c.KeepUnused = 20 * time.Millisecond })
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, gadgets))
	objects := s.objects.Resource(widgetsV1).Namespace("default")
	events, err := objects.Watch(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	defer events.Stop()
	others := s.objects.Resource(widgetsV1.GroupVersion().WithResource("gadgets"))
	_, err = others.List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "the schemas that no request uses are given up", func() bool { return s.InUse() == 1 })
	otherEvents, err := others.Watch(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	defer otherEvents.Stop()
	if n := s.InUse(); n != 2 {
		t.Errorf("%d definitions are in use during watches of the objects of two", n)
	}
	_, err = objects.Create(t.Context(), widget("one", map[string]any{}), metav1.CreateOptions{})
	harness.Must(t, err)
	if event, open := <-events.ResultChan(); !open || event.Type != watch.Added {
		t.Fatalf("a watch meanwhile got %v", event)
	}
	events.Stop()
	otherEvents.Stop()
	harness.Eventually(t, "all schemas are given up", func() bool { return s.InUse() == 0 })

	if _, err = objects.Create(t.Context(), widget("two", map[string]any{"replicas": int64(9)}), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("afterwards, an invalid object gets %v", err)
	}
	made, err := objects.Create(t.Context(), widget("two", map[string]any{}), metav1.CreateOptions{})
	harness.Must(t, err)
	if color, _, _ := unstructured.NestedString(made.Object, "spec", "color"); color != "red" {
		t.Errorf("afterwards, an object has no defaults: %v", made.Object)
	}
	list, err := objects.List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
	if len(list.Items) != 2 {
		t.Errorf("afterwards, a list has %v", list.Items)
	}
}

// unreadable makes definitions unreadable while it is set.
type unreadable struct{ atomic.Bool }

func (u *unreadable) decorate(next generic.StorageDecorator) generic.StorageDecorator {
	return decorate.Storage(next, func(_ schema.GroupResource, s storage.Interface, destroy factory.DestroyFunc) (storage.Interface, factory.DestroyFunc, error) {
		return unreadableStorage{s, u}, destroy, nil
	})
}

type unreadableStorage struct {
	storage.Interface
	now *unreadable
}

func (s unreadableStorage) Unwrap() storage.Interface { return s.Interface }

func (s unreadableStorage) Get(ctx context.Context, key string, o storage.GetOptions, into runtime.Object) error {
	if s.now.Load() {
		return apierrors.NewServiceUnavailable("the database is away")
	}
	return s.Interface.Get(ctx, key, o, into)
}

// TestFirstUseWithoutDatabase checks that a request that needs a schema which can't be read may be retried.
func TestFirstUseWithoutDatabase(t *testing.T) {
	var u unreadable
	s := start(t, func(c *crd.Config) { c.Storage = u.decorate(c.Storage) })
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))
	objects := s.objects.Resource(widgetsV1).Namespace("default")
	u.Store(true)
	if _, err := objects.List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("a list gets %v", err)
	}
	u.Store(false)
	_, err := objects.List(t.Context(), metav1.ListOptions{})
	harness.Must(t, err)
}

// The schema that is in use is replaced when its definition changes, whether its status or its spec.
func TestSchemasInUseFollowTheirDefinition(t *testing.T) {
	s := start(t)
	s.define(t, parse[apiextensionsv1.CustomResourceDefinition](t, widgets))
	objects := s.objects.Resource(widgetsV1).Namespace("default")
	_, err := objects.Create(t.Context(), widget("one", map[string]any{}), metav1.CreateOptions{})
	harness.Must(t, err)
	definitions := s.definitions.ApiextensionsV1().CustomResourceDefinitions()
	d, err := definitions.Get(t.Context(), "widgets.example.com", metav1.GetOptions{})
	harness.Must(t, err)
	d.Labels = map[string]string{"changed": "yes"}
	d, err = definitions.Update(t.Context(), d, metav1.UpdateOptions{})
	harness.Must(t, err)
	spec := d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
	spec.XValidations[0].Rule = "self.replicas <= 9"
	_, err = definitions.Update(t.Context(), d, metav1.UpdateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "the new rule applies", func() bool {
		_, err := objects.Create(t.Context(), widget("two", map[string]any{"replicas": int64(9)}), metav1.CreateOptions{})
		if err != nil && !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
		return err == nil
	})
	if n := s.InUse(); n != 1 {
		t.Errorf("%d definitions are in use", n)
	}
}

// With many definitions in a group, a further one is served as soon as it is established, and discovery has all.
func TestOneMoreOfManyDefinitions(t *testing.T) {
	const many = 100
	s := start(t)
	definition := func(i int) *apiextensionsv1.CustomResourceDefinition {
		return parse[apiextensionsv1.CustomResourceDefinition](t, strings.NewReplacer(
			"gadget", fmt.Sprintf("gadget%d", i), "Gadget", fmt.Sprintf("Gadget%d", i)).Replace(gadgets))
	}
	for i := range many {
		_, err := s.definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition(i), metav1.CreateOptions{})
		harness.Must(t, err)
	}
	s.define(t, definition(many))
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": fmt.Sprintf("Gadget%d", many)}}
	object.SetName("one")
	_, err := s.objects.Resource(widgetsV1.GroupVersion().WithResource(fmt.Sprintf("gadget%ds", many))).Create(t.Context(), object, metav1.CreateOptions{})
	harness.Must(t, err)
	harness.Eventually(t, "discovery has all definitions", func() bool {
		all := &apidiscoveryv2.APIGroupDiscoveryList{}
		harness.Must(t, json.Unmarshal(s.get(t, "/apis", aggregatedType), all))
		last := all.Items[len(all.Items)-1]
		return last.Name == "example.com" && len(last.Versions[0].Resources) == many+1
	})
	var list metav1.APIResourceList
	harness.Must(t, json.Unmarshal(s.get(t, "/apis/example.com/v1", "application/json"), &list))
	if len(list.APIResources) != many+1 || s.InUse() != 1 {
		t.Errorf("%d resources are served, and %d definitions in use", len(list.APIResources), s.InUse())
	}
}
