package handlers

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// retryAfterSeconds is what clients are told while the datastore fails.
const retryAfterSeconds = 1

// unavailableOnOutage answers a write with 503 that is refused while the datastore fails: the refusal may come of that. Upstream
// has allocators of addresses and ports (422) and admission plugins (403) that ask the server itself, and take a failure
// for a reason to refuse. failures counts those of the datastore; nil if that does not fail.
func unavailableOnOutage(handler http.HandlerFunc, failures func() uint64, serializer runtime.NegotiatedSerializer, version schema.GroupVersion) http.HandlerFunc {
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
			err := apierrors.NewServiceUnavailable("the datastore failed while the request was decided on, try again")
			err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: retryAfterSeconds}
			response.replace(err, serializer, version, r)
		}
	}
}
