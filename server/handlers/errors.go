package handlers

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/operation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

// maxErrors is how many errors an answer names. Upstream puts the text together in time that grows with the square of their number:
// ten thousand would take ten seconds, and half a GiB.
const maxErrors = 1000

// LimitErrors lets a store name only the first errors of an invalid object. It must be called before the store is used to write.
func LimitErrors(store *registry.Store) {
	if strategy := store.CreateStrategy; strategy != nil && !limited(strategy) {
		store.CreateStrategy = fewCreateErrors{strategy}
		if declared, ok := strategy.(rest.DeclarativeValidationStrategy); ok {
			store.CreateStrategy = struct {
				fewCreateErrors
				fewDeclaredErrors
			}{fewCreateErrors{strategy}, fewDeclaredErrors{declared}}
		}
	}
	if strategy := store.UpdateStrategy; strategy != nil && !limited(strategy) {
		store.UpdateStrategy = fewUpdateErrors{strategy}
		if declared, ok := strategy.(rest.DeclarativeValidationStrategy); ok {
			store.UpdateStrategy = struct {
				fewUpdateErrors
				fewDeclaredErrors
			}{fewUpdateErrors{strategy}, fewDeclaredErrors{declared}}
		}
	}
}

// limited reports whether LimitErrors has made a strategy: versions of a resource can share a store.
func limited(strategy any) bool {
	_, ok := strategy.(interface{ namesFewErrors() })
	return ok
}

func (fewCreateErrors) namesFewErrors() {}
func (fewUpdateErrors) namesFewErrors() {}

type fewCreateErrors struct{ rest.RESTCreateStrategy }

func (s fewCreateErrors) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	return few(s.RESTCreateStrategy.Validate(ctx, obj))
}

type fewUpdateErrors struct{ rest.RESTUpdateStrategy }

func (s fewUpdateErrors) ValidateUpdate(ctx context.Context, obj, old runtime.Object) field.ErrorList {
	return few(s.RESTUpdateStrategy.ValidateUpdate(ctx, obj, old))
}

type fewDeclaredErrors struct {
	rest.DeclarativeValidationStrategy
}

func (s fewDeclaredErrors) ValidateDeclaratively(ctx context.Context, obj, old runtime.Object, errs field.ErrorList, operation operation.Type, config rest.DeclarativeValidationConfig) field.ErrorList {
	return few(s.DeclarativeValidationStrategy.ValidateDeclaratively(ctx, obj, old, errs, operation, config))
}

func few(errs field.ErrorList) field.ErrorList {
	if len(errs) <= maxErrors {
		return errs
	}
	rest := &field.Error{Type: field.ErrorTypeInvalid, BadValue: field.OmitValueType{}, Detail: fmt.Sprintf("there are %d more errors", len(errs)-maxErrors)}
	return append(errs[:maxErrors:maxErrors], rest)
}

// StoreOf returns the store that a REST storage is or embeds; nil if it has none.
func StoreOf(from rest.Storage) *registry.Store {
	if store, ok := from.(*registry.Store); ok {
		return store
	}
	v := reflect.Indirect(reflect.ValueOf(from))
	if v.Kind() != reflect.Struct {
		return nil
	}
	field, found := v.Type().FieldByName("Store")
	if !found || !field.Anonymous || len(field.Index) != 1 {
		return nil
	}
	store, _ := v.FieldByIndex(field.Index).Interface().(*registry.Store)
	return store
}

// badPatch responds with 400 instead of upstream's 500 if a patch fails without a reason, such as an apply of a field that does
// not exist. Only upstream's patchers and field managers return errors without a reason, when the patch is wrong: errors of
// the store (see package apistorage), of admission and of the registry have one. An error after the commit stays a 500.
//
// Field managers may also call a custom resource's webhook to convert the stored object. conversionFailures returns the number
// of failed conversions: if one failed meanwhile, the response stays a 500. It is nil if there are no webhooks.
func badPatch(handler http.HandlerFunc, conversionFailures func() uint64) http.HandlerFunc {
	if handler == nil {
		return nil
	}
	if conversionFailures == nil {
		conversionFailures = func() uint64 { return 0 }
	}
	return func(w http.ResponseWriter, r *http.Request) {
		response := &bufferedResponse{ResponseWriter: w, codes: []int{http.StatusInternalServerError}}
		before := conversionFailures()
		ctx, committed := apistorage.WithCommitted(r.Context())
		r = r.WithContext(ctx)
		handler(response, r)
		if response.code == 0 {
			return
		}
		if message, ok := withoutReason(response.body.Bytes()); ok && !committed() && conversionFailures() == before {
			response.replace(apierrors.NewBadRequest(message), r)
			return
		}
		response.send()
	}
}

// withoutReason returns the message of the Status in body. ok is false if the Status has a reason.
func withoutReason(body []byte) (message string, ok bool) {
	obj, _, err := codecs.Serving().UniversalDeserializer().Decode(body, nil, nil)
	if status, isStatus := obj.(*metav1.Status); err == nil && isStatus {
		return status.Message, status.Reason == metav1.StatusReasonUnknown
	}
	return "", false
}

// namedCreater is a storage whose errors about posted fields have a reason. Upstream returns errors about a Binding without one.
type namedCreater struct{ rest.NamedCreater }

func (c namedCreater) Create(ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	created, err := c.NamedCreater.Create(ctx, name, obj, validate, options)
	if aggregate, ok := err.(utilerrors.Aggregate); ok && !slices.ContainsFunc(aggregate.Errors(), isNotOfField) {
		err = apierrors.NewBadRequest(err.Error())
	}
	return created, err
}

func isNotOfField(err error) bool {
	_, ok := err.(*field.Error)
	return !ok
}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate implements rest.SubresourceObjectMetaPreserver.
func (c namedCreater) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool {
	preserver, ok := c.NamedCreater.(rest.SubresourceObjectMetaPreserver)
	return ok && preserver.PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate()
}

// retryAfterSeconds is the Retry-After header while the datastore fails.
const retryAfterSeconds = 1

// unavailableOnOutage responds with 503 to writes that are rejected while the datastore fails, since that may be the cause:
// upstream's allocators of addresses and ports (422) and admission plugins (403) query the server itself, and reject a
// request if the query fails. failures returns the number of failed datastore operations; it is nil if none can fail.
func unavailableOnOutage(handler http.HandlerFunc, failures func() uint64) http.HandlerFunc {
	if handler == nil || failures == nil {
		return handler
	}
	return func(w http.ResponseWriter, r *http.Request) {
		before := failures()
		response := &bufferedResponse{ResponseWriter: w, codes: []int{http.StatusBadRequest, http.StatusForbidden, http.StatusUnprocessableEntity}}
		handler(response, r)
		switch {
		case response.code == 0:
		case failures() == before:
			response.send()
		default:
			err := apierrors.NewServiceUnavailable("the datastore failed during the request, try again")
			err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
			response.replace(err, r)
		}
	}
}
