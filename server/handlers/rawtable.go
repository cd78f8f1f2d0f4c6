package handlers

import (
	"context"
	"net/http"
	"sync/atomic"

	metainternalversionscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/printers"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"

	"github.com/sqube/sqube/sqlstore/apistorage"
)

// Lists as Tables and as metadata contain parts of each object. They are built page by page, so that the objects are never all
// in memory at once.

// preferRawTables returns a handler that serves lists as metadata, and as Tables in JSON, with the handler that list makes for a
// store, and otherwise calls objects.
func preferRawTables(storage rest.Storage, scope *handlers.RequestScope, objects http.HandlerFunc, list func(*registry.Store) http.HandlerFunc) http.HandlerFunc {
	store := plainStore(storage, scope)
	if store == nil {
		return objects
	}
	tables := list(rawStore(store, scope, "", apistorage.JSON))
	partial := *store
	partial.NewFunc = func() runtime.Object { return &metav1.PartialObjectMetadata{} }
	partial.NewListFunc = func() runtime.Object { return &metav1.PartialObjectMetadataList{} }
	metadata := list(&partial)
	return func(w http.ResponseWriter, r *http.Request) {
		to, format, plain := asked(r, scope)
		switch {
		case to == nil:
			objects(w, r)
		case to.Kind == "PartialObjectMetadataList":
			metadata(w, r)
		default:
			table, ok := tableOf(r, scope, to)
			if !ok || !plain || format != apistorage.JSON || responseAudited(r) {
				objects(w, r)
				return
			}
			r = r.WithContext(apistorage.WithTable(r.Context(), table))
			r.Header = r.Header.Clone()
			r.Header.Set("Accept", runtime.ContentTypeJSON)
			tables(w, r)
		}
	}
}

// tableOf returns the requested Table, or false if to is another kind, its options are invalid, or its rows must contain whole objects.
func tableOf(r *http.Request, scope *handlers.RequestScope, to *schema.GroupVersionKind) (apistorage.Table, bool) {
	options := &metav1.TableOptions{}
	err := metainternalversionscheme.ParameterCodec.DecodeParameters(r.URL.Query(), metav1.SchemeGroupVersion, options)
	if err != nil || to.Kind != "Table" || len(metavalidation.ValidateTableOptions(options)) > 0 || options.IncludeObject == metav1.IncludeObject {
		return apistorage.Table{}, false
	}
	return apistorage.Table{
		Version:      to.GroupVersion(),
		WithMetadata: options.IncludeObject != metav1.IncludeNone,
		Rows: func(ctx context.Context, part runtime.Object) (*metav1.Table, error) {
			return scope.TableConvertor.ConvertToTable(ctx, part, options)
		},
	}, true
}

// printer has the functions that print the rows of Tables, for every built-in kind.
var printer atomic.Pointer[printers.HumanReadableGenerator]

// sharePrinter makes a store, and its subresources' copies of it, print with the printer of the first store of the process. Upstream
// gives each store a printer of its own for all kinds.
func sharePrinter(store *registry.Store) {
	convertor, ok := store.TableConvertor.(printerstorage.TableConvertor)
	if !ok {
		return
	}
	own, ok := convertor.TableGenerator.(*printers.HumanReadableGenerator)
	if !ok || printer.CompareAndSwap(nil, own) {
		return
	}
	if shared := printer.Load(); own != shared {
		*own = *shared
	}
}
