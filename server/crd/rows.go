package crd

import (
	"context"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/json"

	"github.com/sqube/sqube/server/resources"
)

// rows are the stored objects of a resource for an informer of this process, which needs only a part of each. The codec decodes that.
type rows struct {
	storage.Interface
	prefix  string
	newList func() runtime.Object
}

func newRows(o resources.CodecRESTOptions, resource schema.GroupResource, newObject, newList func() runtime.Object) (rows, factory.DestroyFunc, error) {
	options, err := o.GetRESTOptions(resource, nil)
	if err != nil {
		return rows{}, nil, err
	}
	made, destroy, err := options.Decorator(options.StorageConfig, options.ResourcePrefix, nil, newObject, newList, storage.DefaultNamespaceScopedAttr, nil, nil)
	return rows{made, options.ResourcePrefix, newList}, destroy, err
}

// listWatch returns how an informer reads them.
func (r rows) listWatch() *cache.ListWatch {
	options := func(o metav1.ListOptions) storage.ListOptions {
		predicate := storage.Everything
		predicate.AllowWatchBookmarks = o.AllowWatchBookmarks
		return storage.ListOptions{
			ResourceVersion: o.ResourceVersion, ResourceVersionMatch: o.ResourceVersionMatch,
			SendInitialEvents: o.SendInitialEvents, Predicate: predicate, Recursive: true,
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := r.newList()
			return list, r.GetList(ctx, r.prefix, options(o), list)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			events, err := r.Watch(ctx, r.prefix, options(o))
			if err != nil {
				return nil, err
			}
			return watch.Filter(events, func(e watch.Event) (watch.Event, bool) {
				if held, ok := e.Object.(runtime.CacheableObject); ok {
					e.Object = held.GetObject()
				}
				return e, true
			}), nil
		},
	}
}

// Metadata returns how an informer reads the metadata of a custom resource's objects without labels and annotations, or nil if there
// is no such custom resource. Unlike a request, that needs no schemas.
func (s *Server) Metadata(resource schema.GroupVersionResource) cache.ListerWatcher {
	if _, err := s.informer.Lister().Get(resource.Resource + "." + resource.Group); err != nil {
		return nil
	}
	var once sync.Once
	var stored rows
	var failed error
	opened := func(ctx context.Context) (*cache.ListWatch, error) { // ctx ends when the informer stops
		once.Do(func() {
			options := customResourceOptions(s.storage)
			options.Codec = metadataCodec{options.Codec}
			var destroy factory.DestroyFunc
			stored, destroy, failed = newRows(options, resource.GroupResource(),
				func() runtime.Object { return &metav1.PartialObjectMetadata{} },
				func() runtime.Object { return &metav1.PartialObjectMetadataList{} })
			if failed == nil {
				context.AfterFunc(ctx, destroy)
			}
		})
		return stored.listWatch(), failed
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			rows, err := opened(ctx)
			if err != nil {
				return nil, err
			}
			return rows.ListWithContext(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			rows, err := opened(ctx)
			if err != nil {
				return nil, err
			}
			return rows.WatchWithContext(ctx, o)
		},
	}
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
