package crd

import (
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"sigs.k8s.io/json"

	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/server/resources"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// rows are the stored objects of a resource for an informer of this process, which needs only a part of each. The codec decodes that.
type rows struct {
	apistorage.Reader
	destroy factory.DestroyFunc
}

// Destroy ends what is kept for the objects.
func (r rows) Destroy() { r.destroy() }

func newRows(o resources.CodecRESTOptions, resource schema.GroupResource, newObject func() runtime.Object) (rows, error) {
	options, err := o.GetRESTOptions(resource, nil)
	if err != nil {
		return rows{}, err
	}
	made, destroy, err := options.Decorator(options.StorageConfig, options.ResourcePrefix, nil, newObject, nil, storage.DefaultNamespaceScopedAttr, nil, nil)
	if err != nil {
		return rows{}, err
	}
	stored := apistorage.Of(made)
	if stored == nil {
		return rows{}, fmt.Errorf("%T of %s is not the log's", made, resource)
	}
	return rows{stored.Decoded(), destroy}, nil
}

// Metadata returns how an informer reads the metadata of a custom resource's objects without labels and annotations, or nil if there
// is no such custom resource. Unlike a request, that needs no schemas.
func (s *Server) Metadata(resource schema.GroupVersionResource) informer.Source {
	if _, err := s.informer.Lister().Get(resource.Resource + "." + resource.Group); err != nil {
		return nil
	}
	options := customResourceOptions(s.storage)
	options.Codec = metadataCodec{options.Codec}
	stored, err := newRows(options, resource.GroupResource(), func() runtime.Object { return &metav1.PartialObjectMetadata{} })
	if err != nil {
		return nil // then it is read by requests
	}
	return stored
}

// metadataCodec decodes the metadata of stored objects.
type metadataCodec struct{ runtime.Codec }

// Decode implements runtime.Decoder.
func (metadataCodec) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var stored struct {
		metav1.TypeMeta
		Metadata struct {
			metav1.ObjectMeta
			ManagedFields skipped `json:"managedFields"`
			Annotations   skipped `json:"annotations"`
			Labels        skipped `json:"labels"`
		} `json:"metadata"`
	}
	if err := json.UnmarshalCaseSensitivePreserveInts(data, &stored); err != nil {
		// Upstream's handler drops the malformed fields of old objects, too.
		whole := map[string]any{}
		if err := json.UnmarshalCaseSensitivePreserveInts(data, &whole); err != nil {
			return nil, nil, err
		}
		valid, _, _, err := objectmeta.GetObjectMetaWithOptions(whole, objectmeta.ObjectMetaOptions{DropMalformedFields: true})
		if err != nil {
			return nil, nil, err
		}
		stored.Metadata.ObjectMeta = *valid
	}
	kind := stored.GroupVersionKind()
	into.(*metav1.PartialObjectMetadata).TypeMeta = stored.TypeMeta
	into.(*metav1.PartialObjectMetadata).ObjectMeta = stored.Metadata.ObjectMeta
	return into, &kind, nil
}
