package main

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/sqube/sqube/cmd/sqube/internal/manifests"
	"github.com/sqube/sqube/server/changes"
	"github.com/sqube/sqube/server/transactions"
)

// tryTransaction returns how the only one of objects is made, if it is a Transaction; else nil. The console tries changes in this form, since it
// applies them so.
func tryTransaction(objects []manifests.Object) func(context.Context, *rest.Config) error {
	if len(objects) != 1 || objects[0].GroupVersionKind() != changes.GroupVersion.WithKind("Transaction") {
		return nil
	}
	return func(ctx context.Context, config *rest.Config) error {
		text, err := json.Marshal(objects[0].Object)
		if err != nil {
			return err
		}
		var t transactions.Transaction
		if err := json.Unmarshal(text, &t); err != nil {
			return err
		}
		if err := withoutConditions(ctx, config, &t.Spec); err != nil {
			return err
		}
		if text, err = json.Marshal(&t); err != nil {
			return err
		}
		discovered, err := discovery.NewDiscoveryClientForConfig(config)
		if err != nil {
			return err
		}
		return discovered.RESTClient().Post().AbsPath("/apis", changes.GroupVersion.String(), transactions.Resource).Body(text).
			SetHeader("Content-Type", "application/json").Do(ctx).Error()
	}
}

// withoutConditions lets a transaction be made on a copy whose controllers have gone on since: what it stands on is a matter of the cluster.
func withoutConditions(ctx context.Context, config *rest.Config, spec *transactions.Spec) error {
	spec.Require = nil
	for i := range spec.Operations {
		o := &spec.Operations[i]
		o.Preconditions = nil
		if o.Verb != transactions.Update || o.Object == nil || o.Subresource != "" {
			continue
		}
		var object unstructured.Unstructured
		if err := json.Unmarshal(o.Object.Raw, &object.Object); err != nil {
			return err
		}
		now, err := current(ctx, config, &object)
		if err != nil {
			return err
		}
		object.SetResourceVersion(now)
		raw, err := json.Marshal(object.Object)
		if err != nil {
			return err
		}
		o.Object.Raw = raw
	}
	return nil
}

// current returns the resourceVersion of an object.
func current(ctx context.Context, config *rest.Config, object *unstructured.Unstructured) (string, error) {
	discovered, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", err
	}
	kind := object.GroupVersionKind()
	mapping, err := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovered)).RESTMapping(schema.GroupKind{Group: kind.Group, Kind: kind.Kind}, kind.Version)
	if err != nil {
		return "", err
	}
	now, err := client.Resource(mapping.Resource).Namespace(object.GetNamespace()).Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return now.GetResourceVersion(), nil
}
