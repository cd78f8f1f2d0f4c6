package crd

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/json"
)

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

// newSlimInformer returns an informer of definitions without schemas, which reads them from storage that decorate makes.
func newSlimInformer(decorate generic.StorageDecorator, resync time.Duration) (cache.SharedIndexInformer, error) {
	options := definitionOptions(decorate)
	options.Codec = slimCodec{options.Codec}
	rows, _, err := newRows(options, apiextensionsv1.Resource("customresourcedefinitions"),
		func() runtime.Object { return &apiextensionsv1.CustomResourceDefinition{} },
		func() runtime.Object { return &apiextensionsv1.CustomResourceDefinitionList{} })
	if err != nil {
		return nil, fmt.Errorf("build the storage in which definitions are watched: %w", err)
	}
	return cache.NewSharedIndexInformer(rows.listWatch(), &apiextensionsv1.CustomResourceDefinition{}, resync, cache.Indexers{}), nil
}
