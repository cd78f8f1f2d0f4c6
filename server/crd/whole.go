package crd

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	clients "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

// wholeDefinitions reads definitions with their schemas.
type wholeDefinitions struct{ rest.Getter }

// read returns the current definition.
func (w wholeDefinitions) read(ctx context.Context, name string) (definition, error) {
	stored, err := w.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := apiserver.Scheme.Convert(stored, d, nil); err != nil {
		return nil, fmt.Errorf("read definition %s: %w", name, err)
	}
	return d, nil
}

// statusClient writes the status and the finalizers of definitions that have no schemas, as controllers have them. The request has
// the whole definition, since admission and the audit log see it.
type statusClient struct {
	clients.CustomResourceDefinitionsGetter
	whole wholeDefinitions
}

// CustomResourceDefinitions implements clients.CustomResourceDefinitionsGetter.
func (c statusClient) CustomResourceDefinitions() clients.CustomResourceDefinitionInterface {
	return statusWriter{c.CustomResourceDefinitionsGetter.CustomResourceDefinitions(), c.whole}
}

type statusWriter struct {
	clients.CustomResourceDefinitionInterface
	whole wholeDefinitions
}

// UpdateStatus implements clients.CustomResourceDefinitionInterface.
func (w statusWriter) UpdateStatus(ctx context.Context, d definition, options metav1.UpdateOptions) (definition, error) {
	whole, err := w.whole.read(ctx, d.Name)
	if err != nil {
		return nil, err
	}
	if whole.UID != d.UID || whole.ResourceVersion != d.ResourceVersion {
		return nil, apierrors.NewConflict(apiextensionsv1.Resource("customresourcedefinitions"), d.Name, fmt.Errorf("it has changed"))
	}
	whole.Status, whole.Finalizers = d.Status, d.Finalizers
	updated, err := w.CustomResourceDefinitionInterface.UpdateStatus(ctx, whole, options)
	if err != nil {
		return nil, err
	}
	for i := range updated.Spec.Versions { // a controller may keep it
		updated.Spec.Versions[i].Schema = nil
	}
	return updated, nil
}

// maybeUnstructured shows to the controller that checks whether schemas are structural only the schemas that may not be: those of
// definitions from before v1, which alone can preserve unknown fields or have its condition.
func (w wholeDefinitions) maybeUnstructured(d definition) (definition, error) {
	if d.Spec.PreserveUnknownFields || apihelpers.FindCRDCondition(d, apiextensionsv1.NonStructuralSchema) != nil {
		return w.read(context.Background(), d.Name)
	}
	return d, nil
}

// seen is an informer whose lister gets what a function makes of its definitions.
type seen struct {
	informers.CustomResourceDefinitionInformer
	as func(definition) (definition, error)
}

// Lister implements informers.CustomResourceDefinitionInformer.
func (s seen) Lister() listers.CustomResourceDefinitionLister {
	return seenLister{s.CustomResourceDefinitionInformer.Lister(), s.as}
}

type seenLister struct {
	listers.CustomResourceDefinitionLister
	as func(definition) (definition, error)
}

// Get implements listers.CustomResourceDefinitionLister.
func (l seenLister) Get(name string) (definition, error) {
	d, err := l.CustomResourceDefinitionLister.Get(name)
	if err != nil {
		return nil, err
	}
	return l.as(d)
}
