package handlers

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	utilfeature "k8s.io/apiserver/pkg/util/feature"

	"github.com/sqube/sqube/sqlstore/apistorage"
)

// Lists as Tables and as metadata have a part of each object. They are made page by page, so that the objects are never all
// in memory.

// convertedOr returns a handler that serves lists as Tables and as metadata by what list makes of a store and a scope for
// them, and other requests by objects.
func convertedOr(storage rest.Storage, scope *handlers.RequestScope, objects http.HandlerFunc,
	list func(*registry.Store, *handlers.RequestScope) http.HandlerFunc) http.HandlerFunc {
	store := plainStore(storage)
	if store == nil || scope.Subresource != "" || utilfeature.DefaultFeatureGate.Enabled(features.AllowUnsafeMalformedObjectDeletion) {
		return objects
	}
	paged := *scope
	paged.TableConvertor = pagedTables{scope.TableConvertor}
	tables := list(rawStore(store, scope, "", apistorage.JSON), &paged)
	partial := *store
	partial.NewFunc = func() runtime.Object { return &metav1.PartialObjectMetadata{} }
	partial.NewListFunc = func() runtime.Object { return &metav1.PartialObjectMetadataList{} }
	metadata := list(&partial, scope)
	return func(w http.ResponseWriter, r *http.Request) {
		switch conversion(r, scope) {
		case "Table":
			if r.URL.Query().Get("includeObject") == string(metav1.IncludeObject) {
				objects(w, r)
				return
			}
			tables(w, r)
		case "PartialObjectMetadataList":
			metadata(w, r)
		default:
			objects(w, r)
		}
	}
}

// conversion returns the kind that a list is to be converted to, "" for none and for what is no list.
func conversion(r *http.Request, scope *handlers.RequestScope) string {
	if r.URL.Query().Has("watch") {
		return ""
	}
	options, _, err := negotiation.NegotiateOutputMediaType(r, scope.Serializer, scope)
	if err != nil || options.Convert == nil {
		return ""
	}
	return options.Convert.Kind
}

// pagedTables makes Tables of lists that come page by page.
type pagedTables struct{ rest.TableConvertor }

// ConvertToTable implements rest.TableConvertor.
func (c pagedTables) ConvertToTable(ctx context.Context, object, tableOptions runtime.Object) (*metav1.Table, error) {
	list, ok := object.(*apistorage.RawList)
	if !ok {
		return c.TableConvertor.ConvertToTable(ctx, object, tableOptions)
	}
	var table *metav1.Table
	err := list.Pages(func(page runtime.Object) error {
		part, err := c.TableConvertor.ConvertToTable(ctx, page, tableOptions)
		if err != nil {
			return err
		}
		for i := range part.Rows {
			object := &part.Rows[i].Object
			if object.Object == nil {
				continue
			}
			// A row shows no more of its object.
			m, err := meta.Accessor(object.Object)
			if err != nil {
				return err
			}
			object.Object = meta.AsPartialObjectMetadata(m)
		}
		if table == nil {
			table = part
		} else {
			table.Rows = append(table.Rows, part.Rows...)
		}
		return nil
	})
	return table, err
}
