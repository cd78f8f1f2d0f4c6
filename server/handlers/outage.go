package handlers

import (
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

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
