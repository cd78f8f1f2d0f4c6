package openapi

import (
	"net/http"
	"strings"

	"github.com/munnerz/goautoneg"
)

// form is the encoding of a document.
type form int

const (
	asJSON form = iota
	asProto
)

// mediaType is a media type that a client may accept, and that of the response.
type mediaType struct {
	subType     string
	form        form
	contentType string
}

const jsonContentType = "application/json"

// The media types of kube-openapi (pkg/handler and pkg/handler3), best first. Those with "@" are not valid media types; kubectl
// sends that of v2, and gets the valid one, like from every server since Kubernetes 1.24.
var (
	v2Types = []mediaType{
		{"json", asJSON, jsonContentType},
		{"com.github.proto-openapi.spec.v2@v1.0+protobuf", asProto, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"},
		{"com.github.proto-openapi.spec.v2.v1.0+protobuf", asProto, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"},
	}
	v3Types = []mediaType{
		{"json", asJSON, jsonContentType},
		{"com.github.proto-openapi.spec.v3.v1.0+protobuf", asProto, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"},
		{"com.github.proto-openapi.spec.v3@v1.0+protobuf", asProto, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"},
	}
)

// negotiate returns the first of the client's accepted types that is offered; ok is false if there is none. It sets Vary for caches.
func negotiate(w http.ResponseWriter, r *http.Request, offered []mediaType) (chosen mediaType, ok bool) {
	w.Header().Add("Vary", "Accept")
	w.Header().Add("Vary", "Accept-Encoding")
	accept := r.Header.Get("Accept")
	if accept == "" {
		return offered[0], true
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, t := range offered {
			if (clause.Type == "application" || clause.Type == "*") && (clause.SubType == t.subType || clause.SubType == "*") {
				return t, true
			}
		}
	}
	return mediaType{}, false
}

// notModified reports whether the client's copy, by its If-None-Match header, is the current one (RFC 9110, 13.1.2).
func notModified(r *http.Request, etag string) bool {
	for _, header := range r.Header.Values("If-None-Match") {
		for token := range strings.SplitSeq(header, ",") {
			token = strings.TrimPrefix(strings.TrimSpace(token), "W/")
			if token == "*" || token == `"`+etag+`"` {
				return true
			}
		}
	}
	return false
}
