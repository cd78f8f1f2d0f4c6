package controllers

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// contents is the namespace controller's client. For each namespace, that controller deletes and then lists the objects of every
// resource, most of which have none there; for these, no request is sent.
type contents struct {
	metadata.Interface
	empty func(context.Context, schema.GroupVersionResource, string) (bool, error)
}

// Resource implements metadata.Interface.
func (c contents) Resource(resource schema.GroupVersionResource) metadata.Getter {
	return resourceContents{c.Interface.Resource(resource), c, resource}
}

type resourceContents struct {
	metadata.Getter
	contents contents
	resource schema.GroupVersionResource
}

// Namespace implements metadata.Getter.
func (r resourceContents) Namespace(namespace string) metadata.ResourceInterface {
	return namespaceContents{r.Getter.Namespace(namespace), func(ctx context.Context) bool {
		empty, err := r.contents.empty(ctx, r.resource, namespace)
		return err == nil && empty // after an error, the request will show it
	}}
}

type namespaceContents struct {
	metadata.ResourceInterface
	empty func(context.Context) bool
}

// DeleteCollection implements metadata.ResourceInterface.
func (n namespaceContents) DeleteCollection(ctx context.Context, options metav1.DeleteOptions, list metav1.ListOptions) error {
	if n.empty(ctx) {
		return nil
	}
	return n.ResourceInterface.DeleteCollection(ctx, options, list)
}

// List implements metadata.ResourceInterface.
func (n namespaceContents) List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if n.empty(ctx) {
		return &metav1.PartialObjectMetadataList{}, nil
	}
	return n.ResourceInterface.List(ctx, options)
}
