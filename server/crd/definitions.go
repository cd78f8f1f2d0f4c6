package crd

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	clients "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/json"

	"github.com/sqube/sqube/server/informer"
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

// The informer holds definitions without their schemas, which are most of them: decoded, one of 60 fields takes 44 KiB, and real ones
// ten times as much. It decodes the rows itself and skips the schemas, which takes a tenth of the time. What needs schemas reads the
// whole definition when it does; see wholeDefinitions.

// slimDefinition is a stored definition without the fields that the informer leaves out.
type slimDefinition struct {
	metav1.TypeMeta
	Metadata struct {
		metav1.ObjectMeta
		ManagedFields skipped `json:"managedFields"`
	} `json:"metadata"`
	Spec struct {
		apiextensionsv1.CustomResourceDefinitionSpec
		Versions []slimVersion `json:"versions"`
	} `json:"spec"`
	Status apiextensionsv1.CustomResourceDefinitionStatus `json:"status"`
}

type slimVersion struct {
	apiextensionsv1.CustomResourceDefinitionVersion
	Schema                   skipped `json:"schema"`
	AdditionalPrinterColumns skipped `json:"additionalPrinterColumns"`
}

// skipped is a field that is not decoded.
type skipped struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*skipped) UnmarshalJSON([]byte) error { return nil }

// slimCodec decodes definitions from their stored form without the fields that the informer leaves out.
type slimCodec struct{ runtime.Codec }

// Decode implements runtime.Decoder.
func (slimCodec) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	d, ok := into.(definition)
	if !ok {
		return nil, nil, fmt.Errorf("can't decode a definition into %T", into)
	}
	var slim slimDefinition
	if err := json.UnmarshalCaseSensitivePreserveInts(data, &slim); err != nil {
		return nil, nil, err
	}
	kind := slim.GroupVersionKind()
	if kind != apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition") {
		return nil, nil, fmt.Errorf("a definition is stored as %s", kind)
	}
	*d = apiextensionsv1.CustomResourceDefinition{ObjectMeta: slim.Metadata.ObjectMeta, Spec: slim.Spec.CustomResourceDefinitionSpec, Status: slim.Status}
	for _, v := range slim.Spec.Versions {
		d.Spec.Versions = append(d.Spec.Versions, v.CustomResourceDefinitionVersion)
	}
	delete(d.Annotations, corev1.LastAppliedConfigAnnotation)
	apiserver.Scheme.Default(d)
	return d, &kind, nil
}

// newSlimInformer returns an informer of definitions without schemas.
func newSlimInformer(c Config) (*informer.Informer, error) {
	options := definitionOptions(c.Storage)
	options.Codec = slimCodec{options.Codec}
	rows, err := newRows(options, apiextensionsv1.Resource("customresourcedefinitions"),
		func() runtime.Object { return &apiextensionsv1.CustomResourceDefinition{} })
	if err != nil {
		return nil, fmt.Errorf("build the storage in which definitions are watched: %w", err)
	}
	made := cache.NewSharedIndexInformer(&cache.ListWatch{}, &apiextensionsv1.CustomResourceDefinition{}, 0, cache.Indexers{})
	return informer.New(made, informer.Options{
		Name: "customresourcedefinitions", Feed: c.Feed, Resync: c.Resync, Source: func() informer.Source { return rows },
	}), nil
}

// establishedWait is how long upstream's handler delays the first creation of a custom resource after its definition is
// established, so that other servers have probably seen it by then.
const establishedWait = 2 * time.Second

// withoutWait makes a definition look as if that time had passed. sqube's servers look for definitions that they have not seen
// (awaitDefinition), so applying a definition together with its objects is two seconds faster.
func withoutWait(definition definition) (definition, error) {
	established := apihelpers.FindCRDCondition(definition, apiextensionsv1.Established)
	if established == nil || time.Since(established.LastTransitionTime.Time) >= establishedWait {
		return definition, nil
	}
	// The informer's object is shared, so the condition is changed in a copy that shares everything else.
	older := *definition
	older.Status.Conditions = slices.Clone(definition.Status.Conditions)
	apihelpers.FindCRDCondition(&older, apiextensionsv1.Established).LastTransitionTime = metav1.NewTime(time.Now().Add(-establishedWait))
	return &older, nil
}
