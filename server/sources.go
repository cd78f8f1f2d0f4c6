package server

import (
	"context"
	"fmt"
	"sync"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/sqube/sqube/server/crd"
	"github.com/sqube/sqube/server/handlers"
	"github.com/sqube/sqube/server/informer"
	"github.com/sqube/sqube/sqlstore"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// source reads the objects of a built-in resource for informers. The storage, which makes objects of records, is made for the first one.
type source struct {
	stored sqlstore.Resource
	terms  []sqlstore.Term
	reader func() (apistorage.Reader, error)
}

// Resource implements informer.Source.
func (s source) Resource() sqlstore.Resource { return s.stored }

// Terms implements informer.Source.
func (s source) Terms() []sqlstore.Term { return s.terms }

// Object implements informer.Source.
func (s source) Object(ctx context.Context, r *sqlstore.Record) (runtime.Object, error) {
	reader, err := s.reader()
	if err != nil {
		return nil, err
	}
	return reader.Object(ctx, r)
}

// versioned returns how informers read the objects of a resource in their Go type; nil if this server does not store them. A selector leaves
// some out; nil for none.
func versioned(b *base, a *apis, resource schema.GroupVersionResource, selector fields.Selector) informer.Source {
	return builtIn(b, a, resource, selector, func(group *genericapiserver.APIGroupInfo, made rest.Storage, stored *apistorage.Storage) (apistorage.Reader, error) {
		kinds, _, err := group.Scheme.ObjectKinds(made.New())
		if err != nil {
			return apistorage.Reader{}, err
		}
		scheme := legacyscheme.Scheme
		if resource.Group == apiregistration.GroupName {
			scheme = aggregatorscheme.Scheme
		}
		var decorate func(runtime.Object)
		if store := handlers.StoreOf(made); store != nil {
			decorate = store.Decorator
		}
		reader := stored.Versioned(scheme, resource.GroupVersion().WithKind(kinds[0].Kind), decorate)
		if selector != nil {
			reader = reader.Only(selector)
		}
		return reader, nil
	})
}

// metadata returns how informers read the metadata of a resource's objects; nil if this server does not store them.
func metadata(b *base, a *apis, resource schema.GroupVersionResource) informer.Source {
	if a.aggregation.Proxies(resource.GroupVersion()) {
		return nil
	}
	if !crd.BuiltIn(resource.GroupResource()) {
		return a.crd.Metadata(resource)
	}
	return builtIn(b, a, resource, nil, func(_ *genericapiserver.APIGroupInfo, _ rest.Storage, stored *apistorage.Storage) (apistorage.Reader, error) {
		return stored.Metadata(), nil
	})
}

// builtIn returns a source of a built-in resource whose objects are stored under its own name, and nil for others. reader is called once.
func builtIn(b *base, a *apis, resource schema.GroupVersionResource, selector fields.Selector,
	reader func(*genericapiserver.APIGroupInfo, rest.Storage, *apistorage.Storage) (apistorage.Reader, error),
) informer.Source {
	name := resource.GroupResource()
	if _, ok := storedHere(b, a, resource); !ok && name != apiextensions.Resource("customresourcedefinitions") {
		return nil
	}
	for _, group := range a.groups {
		if group.Name != resource.Group {
			continue
		}
		return source{sqlstore.Resource{Group: name.Group, Name: name.Resource}, sqlstore.FieldTerms(selector), sync.OnceValues(func() (apistorage.Reader, error) {
			info, err := group.Info()
			if err != nil {
				return apistorage.Reader{}, err
			}
			made := info.VersionedResourcesStorageMap[resource.Version][resource.Resource]
			if made == nil {
				return apistorage.Reader{}, fmt.Errorf("%s is not served", resource)
			}
			stored := b.objectCounter.stored()[name]
			if store := handlers.StoreOf(made); store != nil {
				stored = apistorage.Of(store.Storage.Storage)
			}
			if stored == nil {
				return apistorage.Reader{}, fmt.Errorf("%s is not stored in the log", resource)
			}
			return reader(info, made, stored)
		})}
	}
	return nil
}
