package ledger

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Namespace is the namespace of the objects.
const Namespace = "ledger"

// Label marks every object written by a Writer; Selector selects these.
const (
	Label    = "ledger"
	Selector = Label + "=yes"
)

// Kind is a kind of object that a Writer can write.
type Kind struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
	// Deletable is false for kinds whose deletion takes more than one change: a pod is marked first, a namespace waits for a
	// controller to empty it.
	Deletable bool
	kind      string
	content   map[string]any // in addition to the metadata
}

// The kinds.
var (
	ConfigMaps = Kind{
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Namespaced: true, Deletable: true,
		kind: "ConfigMap",
	}
	Pods = Kind{
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespaced: true,
		kind: "Pod",
		content: map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": "main", "image": "registry.example.com/main:1"}},
		}},
	}
	Namespaces = Kind{
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"},
		kind:     "Namespace",
	}
	// Gadgets are custom resources, which Prepare defines.
	Gadgets = Kind{
		Resource: schema.GroupVersionResource{Group: gadgetGroup, Version: "v1", Resource: "gadgets"}, Namespaced: true, Deletable: true,
		kind:    "Gadget",
		content: map[string]any{"spec": map[string]any{"size": int64(3)}},
	}
)

const gadgetGroup = "ledger.example.com"

// client returns the client of the kind's objects.
func (k Kind) client(c dynamic.Interface) dynamic.ResourceInterface {
	if k.Namespaced {
		return c.Resource(k.Resource).Namespace(Namespace)
	}
	return c.Resource(k.Resource)
}

// object returns a new object of the kind.
func (k Kind) object(name string) *unstructured.Unstructured {
	o := (&unstructured.Unstructured{Object: k.content}).DeepCopy()
	if o.Object == nil {
		o.Object = map[string]any{}
	}
	o.SetGroupVersionKind(k.Resource.GroupVersion().WithKind(k.kind))
	o.SetName(name)
	o.SetLabels(map[string]string{Label: "yes"})
	return o
}

// key identifies an object of the kind.
func (k Kind) key(name string) Key { return Key{k.Resource.Resource, name} }

// Prepare creates what the kinds need: the namespace, its service account and the definition of gadgets. It returns once
// gadgets are served.
func Prepare(ctx context.Context, c dynamic.Interface) error {
	core := schema.GroupVersion{Version: "v1"}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	for _, step := range []struct {
		client dynamic.ResourceInterface
		object map[string]any
	}{
		{c.Resource(core.WithResource("namespaces")), map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": Namespace},
		}},
		{c.Resource(core.WithResource("serviceaccounts")).Namespace(Namespace), map[string]any{
			"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default"},
		}},
		{c.Resource(definitions), gadgetDefinition()},
	} {
		_, err := step.client.Create(ctx, &unstructured.Unstructured{Object: step.object}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return waitServed(ctx, c)
}

func gadgetDefinition() map[string]any {
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   map[string]any{"name": "gadgets." + gadgetGroup},
		"spec": map[string]any{
			"group": gadgetGroup,
			"scope": "Namespaced",
			"names": map[string]any{"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{
					"type": "object",
					"properties": map[string]any{"spec": map[string]any{
						"type":       "object",
						"properties": map[string]any{"size": map[string]any{"type": "integer"}},
					}},
				}},
			}},
		},
	}
}

// waitServed waits until gadgets can be listed. They can't be watched earlier.
func waitServed(ctx context.Context, c dynamic.Interface) error {
	for {
		_, err := Gadgets.client(c).List(ctx, metav1.ListOptions{})
		if err == nil {
			return nil
		}
		if !apierrors.IsNotFound(err) && !apierrors.IsServiceUnavailable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gadgets are not served: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
