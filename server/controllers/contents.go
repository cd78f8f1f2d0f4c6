package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
)

// contents is the namespace controller's client. For each namespace, that controller deletes and then lists the objects of every
// resource, most of which have none there; for these, no request is sent.
//
// It does so in the preferred version. If a conversion webhook fails to convert a custom resource to that version, all are deleted one by
// one, in the version in which that works.
type contents struct {
	metadata.Interface
	empty  func(context.Context, schema.GroupVersionResource, string) (bool, error)
	stored func(ctx context.Context, resource schema.GroupVersionResource, namespace string) ([]runtime.Object, error)
	groups discovery.ServerGroupsInterface
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
	return namespaceContents{r.Getter.Namespace(namespace), r, namespace}
}

type namespaceContents struct {
	metadata.ResourceInterface
	of        resourceContents
	namespace string
}

func (n namespaceContents) empty(ctx context.Context) bool {
	empty, err := n.of.contents.empty(ctx, n.of.resource, n.namespace)
	return err == nil && empty // after an error, the request will show it
}

// DeleteCollection implements metadata.ResourceInterface.
func (n namespaceContents) DeleteCollection(ctx context.Context, options metav1.DeleteOptions, list metav1.ListOptions) error {
	if n.empty(ctx) {
		return nil
	}
	err := n.ResourceInterface.DeleteCollection(ctx, options, list)
	if !failedInside(err) {
		return err
	}
	stored, ok := n.stored(ctx)
	if !ok {
		return err
	}
	versions := n.of.contents.versions(n.of.resource)
	var failed []error
	for _, object := range stored.Items {
		if err := n.deleteInAny(ctx, versions, object.Name, options); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", object.Name, err))
		}
	}
	return errors.Join(failed...)
}

// deleteInAny deletes an object in the preferred version, or in one of the others. It returns the preferred version's error.
func (n namespaceContents) deleteInAny(ctx context.Context, others []metadata.Getter, name string, options metav1.DeleteOptions) error {
	err := n.ResourceInterface.Delete(ctx, name, options)
	if apierrors.IsNotFound(err) {
		return nil
	}
	for _, other := range others {
		if failedInside(err) && other.Namespace(n.namespace).Delete(ctx, name, options) == nil {
			return nil
		}
	}
	return err
}

// versions returns the other versions of the resource's group.
func (c contents) versions(resource schema.GroupVersionResource) (others []metadata.Getter) {
	groups, err := c.groups.ServerGroups()
	if err != nil {
		return nil // the preferred version has to do
	}
	for _, group := range groups.Groups {
		for _, version := range group.Versions {
			if group.Name == resource.Group && version.Version != resource.Version {
				others = append(others, c.Interface.Resource(resource.GroupResource().WithVersion(version.Version)))
			}
		}
	}
	return others
}

// List implements metadata.ResourceInterface.
func (n namespaceContents) List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	if n.empty(ctx) {
		return &metav1.PartialObjectMetadataList{}, nil
	}
	list, err := n.ResourceInterface.List(ctx, options)
	if failedInside(err) {
		if stored, ok := n.stored(ctx); ok {
			return stored, nil
		}
	}
	return list, err
}

// stored returns the metadata of the stored objects, and false if it can't.
func (n namespaceContents) stored(ctx context.Context) (*metav1.PartialObjectMetadataList, bool) {
	objects, err := n.of.contents.stored(ctx, n.of.resource, n.namespace)
	if err != nil {
		return nil, false
	}
	list := &metav1.PartialObjectMetadataList{}
	for _, object := range objects {
		list.Items = append(list.Items, *object.(*metav1.PartialObjectMetadata))
	}
	return list, true
}

// failedInside reports whether the server could not carry out a request, as when it can't read an object in the request's version.
func failedInside(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code == http.StatusInternalServerError
}
