package handlers

import (
	"bytes"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
)

// heldResponse keeps a response with certain codes back, to be released or replaced.
type heldResponse struct {
	http.ResponseWriter
	held []int // the codes
	code int   // of the response that is kept back; 0 for none
	body bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (h *heldResponse) WriteHeader(code int) {
	if slices.Contains(h.held, code) {
		h.code = code
		return
	}
	h.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (h *heldResponse) Write(data []byte) (int, error) {
	if h.code != 0 {
		return h.body.Write(data)
	}
	return h.ResponseWriter.Write(data)
}

// release sends the response.
func (h *heldResponse) release() {
	h.ResponseWriter.WriteHeader(h.code)
	_, _ = h.ResponseWriter.Write(h.body.Bytes()) // the client may be gone; nobody else is to be told
}

// replace sends an error in place of the response.
func (h *heldResponse) replace(err error, serializer runtime.NegotiatedSerializer, version schema.GroupVersion, r *http.Request) {
	for _, name := range []string{"Content-Type", "Content-Encoding", "Content-Length"} {
		h.Header().Del(name)
	}
	responsewriters.ErrorNegotiated(err, serializer, version, h.ResponseWriter, r)
}

// Unwrap lets http.ResponseController find what the writer can do.
func (h *heldResponse) Unwrap() http.ResponseWriter { return h.ResponseWriter }
