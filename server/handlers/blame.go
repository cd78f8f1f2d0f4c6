package handlers

import (
	"bytes"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/sqube/sqube/server/codecs"
)

// blame makes a 400 of a 500 that is the client's fault. For some bad input,
// such as an apply patch with a field that does not exist, upstream's verbs
// return an error that has no reason, which becomes a 500 without one. An error
// of the server itself has a reason here: InternalError, ServiceUnavailable or
// Timeout (see package apistorage).
func blame(handler http.HandlerFunc, serializer runtime.NegotiatedSerializer, version schema.GroupVersion) http.HandlerFunc {
	if handler == nil {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request) {
		held := &heldResponse{ResponseWriter: w}
		handler(held, r)
		if !held.holding {
			return
		}
		if message, ok := withoutReason(held.body.Bytes()); ok {
			for _, name := range []string{"Content-Type", "Content-Encoding", "Content-Length"} {
				w.Header().Del(name)
			}
			responsewriters.ErrorNegotiated(apierrors.NewBadRequest(message), serializer, version, w, r)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
		_, _ = w.Write(held.body.Bytes()) // the client may be gone; nobody else is to be told
	}
}

// badName begins the message about a name, such as that of a namespace in the
// path, of which no key can be made. It has a reason, but not the right one.
const badName = "Internal error occurred: invalid resource name "

// badConversion begins the message about a conversion webhook that failed, which
// is the fault of none who send requests, and has no reason either.
const badConversion = "conversion webhook for "

// withoutReason returns the message of the Status in body if it has no reason,
// and is not about what the server itself lacks.
func withoutReason(body []byte) (message string, ok bool) {
	obj, _, err := codecs.Serving().UniversalDeserializer().Decode(body, nil, nil)
	if status, isStatus := obj.(*metav1.Status); err == nil && isStatus {
		blamed := status.Reason == metav1.StatusReasonUnknown && !strings.HasPrefix(status.Message, badConversion)
		return status.Message, blamed || strings.HasPrefix(status.Message, badName)
	}
	return "", false
}

// heldResponse keeps a response with status 500 back.
type heldResponse struct {
	http.ResponseWriter
	holding bool
	body    bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (h *heldResponse) WriteHeader(code int) {
	if code == http.StatusInternalServerError {
		h.holding = true
		return
	}
	h.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (h *heldResponse) Write(data []byte) (int, error) {
	if h.holding {
		return h.body.Write(data)
	}
	return h.ResponseWriter.Write(data)
}

// Unwrap lets http.ResponseController find what the writer can do.
func (h *heldResponse) Unwrap() http.ResponseWriter { return h.ResponseWriter }
