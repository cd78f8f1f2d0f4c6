package apistorage

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/sqlstore"
)

// Reader makes objects of the records of a resource, for an informer of this process. They are what a client gets.
type Reader struct {
	storage *Storage
	object  func(context.Context, *sqlstore.Record, string) (runtime.Object, error)
	only    *storage.SelectionPredicate // nil for all objects
}

// Of returns the Storage that s is or wraps; nil if it does something else.
func Of(s storage.Interface) *Storage {
	for {
		switch this := s.(type) {
		case *Storage:
			return this
		case interface{ Unwrap() storage.Interface }:
			s = this.Unwrap()
		default:
			return nil
		}
	}
}

// Resource is the resource as the log names it.
func (r Reader) Resource() sqlstore.Resource { return r.storage.resource }

// Terms are conditions that the record of every object fulfills that is not left out.
func (r Reader) Terms() []sqlstore.Term {
	if r.only == nil {
		return nil
	}
	return r.storage.terms(r.only)
}

// Object returns the object of a record, or nil if it is left out. Nothing else refers to it.
func (r Reader) Object(ctx context.Context, record *sqlstore.Record) (runtime.Object, error) {
	key := r.storage.prefix + record.Key
	if matches, err := r.matches(ctx, record, key); err != nil || !matches {
		return nil, err
	}
	return r.object(ctx, record, key)
}

func (r Reader) matches(ctx context.Context, record *sqlstore.Record, key string) (bool, error) {
	if r.only == nil {
		return true, nil
	}
	if matches, decided := r.storage.decide(r.only, record); decided {
		return matches, nil
	}
	internal := r.storage.NewObject()
	if _, _, err := r.storage.open(ctx, record, key, internal); err != nil {
		return false, err
	}
	return r.only.Matches(internal)
}

// Only returns a Reader that leaves out the objects that a field selector does not match.
func (r Reader) Only(selector fields.Selector) Reader {
	r.only = &storage.SelectionPredicate{Label: labels.Everything(), Field: selector, GetAttrs: r.storage.attributes}
	return r
}

// Versioned returns a Reader of objects in a version of the scheme, without their kind, as typed clients get them. decorate is called with each
// internal object; nil for nothing.
func (s *Storage) Versioned(scheme *runtime.Scheme, kind schema.GroupVersionKind, decorate func(runtime.Object)) Reader {
	asStored := s.protobuf != nil && decorate == nil && s.protobuf.kind == metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind}
	return Reader{storage: s, object: func(ctx context.Context, r *sqlstore.Record, key string) (runtime.Object, error) {
		data, _, err := s.unseal(ctx, r, key)
		if err != nil {
			return nil, err
		}
		if asStored && s.protobuf.is(data) {
			obj := s.protobuf.empty()
			if s.protobuf.unmarshal(data, s.store.Encoding(r.Revision), obj, r.Revision, false) == nil {
				return obj, nil
			}
		}
		internal := s.NewObject()
		if err := s.decode(data, internal, r.Revision); err != nil {
			return nil, s.undecodable(r, key, err)
		}
		if decorate != nil {
			decorate(internal)
		}
		obj, err := scheme.ConvertToVersion(internal, kind.GroupVersion())
		if err != nil {
			return nil, s.undecodable(r, key, err)
		}
		obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return obj, nil
	}}
}

// Metadata returns a Reader of objects as metav1.PartialObjectMetadata.
func (s *Storage) Metadata() Reader {
	return Reader{storage: s, object: func(ctx context.Context, r *sqlstore.Record, key string) (runtime.Object, error) {
		obj := &metav1.PartialObjectMetadata{}
		return obj, s.view(ctx, r, key, obj)
	}}
}

// Decoded returns a Reader of objects as the codec of the storage decodes them.
func (s *Storage) Decoded() Reader {
	return Reader{storage: s, object: func(ctx context.Context, r *sqlstore.Record, key string) (runtime.Object, error) {
		obj := s.NewObject()
		_, _, err := s.open(ctx, r, key, obj)
		return obj, err
	}}
}
