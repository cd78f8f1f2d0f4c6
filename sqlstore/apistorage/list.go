package apistorage

import (
	"context"
	"fmt"
	"reflect"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sqube/sqube/sqlstore"
)

// GetList implements storage.Interface.
func (s *Storage) GetList(ctx context.Context, key string, opts storage.ListOptions, listObj runtime.Object) (err error) {
	defer ensureReason(&err)
	request := ctx
	ctx, span := s.span(ctx, "List sqlstore", key)
	defer span.End()
	row, full, err := s.rowKey(key, opts.Recursive)
	if err != nil {
		return err
	}
	at, revision, err := s.decodeCursor(full, opts)
	if err != nil {
		return err
	}
	if err := s.awaitRevision(ctx, opts.ResourceVersion, revision); err != nil {
		return err
	}
	if revision != 0 && opts.Predicate.Continue == "" { // a token's is that of a list
		if revision, err = s.store.WholeTransaction(ctx, revision); err != nil {
			return ClientError(err)
		}
	}
	w := &walk{Storage: s, opts: opts, query: sqlstore.Query{Resource: s.resource, Revision: revision}, start: at, at: at, full: full}
	w.exactly = isExact(opts.Predicate.Continue, revision)
	w.query.Retained = revision != 0 && !w.exactly
	if opts.Recursive {
		w.query.Prefix = row
	}
	if revision != 0 {
		if err := s.guard(ctx, row, revision); apierrors.IsForbidden(err) && opts.Predicate.Continue != "" {
			return w.expired()
		} else if err != nil {
			return err
		}
	}
	if raw, ok := listObj.(*RawList); ok {
		err := s.listRaw(ctx, w, row, raw)
		raw.ctx = request // later pages are read after the span has ended
		return err
	}
	return s.listObjects(ctx, w, row, listObj)
}

// listObjects is GetList into a list of objects.
func (s *Storage) listObjects(ctx context.Context, w *walk, row string, listObj runtime.Object) error {
	itemsPtr, err := meta.GetItemsPtr(listObj)
	if err != nil {
		return err
	}
	items, err := conversion.EnforcePtr(itemsPtr)
	if err != nil || items.Kind() != reflect.Slice {
		return fmt.Errorf("need a pointer to a slice of items in %T: %v", listObj, err)
	}
	newItem := newItemFunc(listObj, items)
	pageRead := w.reservePage
	if _, partial := listObj.(*metav1.PartialObjectMetadataList); partial {
		pageRead = func(context.Context) error { return nil }
	}
	err = s.eachObject(ctx, w, row, pageRead, newItem, func(obj runtime.Object) {
		items.Set(reflect.Append(items, reflect.ValueOf(obj).Elem()))
	})
	if err != nil {
		return err
	}
	if items.IsNil() {
		items.Set(reflect.MakeSlice(items.Type(), 0, 0))
	}
	w.opts.Predicate.SetShardInfoOnList(listObj)
	return s.versioner.UpdateList(listObj, uint64(w.query.Revision), w.continueToken, w.remaining)
}

// eachObject passes each object of a list to add. If objects are corrupt, its error names them.
func (s *Storage) eachObject(ctx context.Context, w *walk, row string, pageRead func(context.Context) error,
	newItem func() runtime.Object, add func(runtime.Object),
) error {
	var corrupt corruptObjects
	w.accept = func(r *sqlstore.Record) (bool, error) {
		obj := newItem()
		itemKey := s.prefix + r.Key
		if err := s.view(ctx, r, itemKey, obj); err != nil {
			return false, corrupt.add(s.GroupResource, itemKey, err)
		}
		if w.undecided(r) {
			whole := obj
			if _, partial := obj.(*metav1.PartialObjectMetadata); partial {
				whole = s.NewObject()
				if err := s.view(ctx, r, itemKey, whole); err != nil {
					return false, corrupt.add(s.GroupResource, itemKey, err)
				}
			}
			if ok, err := w.opts.Predicate.Matches(whole); err != nil || !ok {
				return false, nil // an object without attributes matches nothing
			}
		}
		add(obj)
		return true, nil
	}
	var err error
	if w.opts.Recursive {
		err = w.collection(ctx, pageRead)
	} else {
		err = w.single(ctx, row)
	}
	if err == nil && len(corrupt.causes) > 0 {
		err = corrupt.err(s.GroupResource)
	}
	return err
}

// newItemFunc returns a function that creates an item of a list to decode into. Items of an unstructured list get its group and
// version.
func newItemFunc(listObj runtime.Object, items reflect.Value) func() runtime.Object {
	if list, ok := listObj.(*unstructured.UnstructuredList); ok {
		if apiVersion := list.GetAPIVersion(); apiVersion != "" {
			return func() runtime.Object {
				return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion}}
			}
		}
	}
	item := items.Type().Elem()
	return func() runtime.Object { return reflect.New(item).Interface().(runtime.Object) }
}
