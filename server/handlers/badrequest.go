package handlers

import (
	"context"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/sqlstore/apistorage"
)

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
