package handlers

import (
	"context"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/operation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
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

// storeOf returns the store that a REST storage is or embeds; nil if it has none.
func storeOf(from rest.Storage) *registry.Store {
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
