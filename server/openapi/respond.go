package openapi

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/munnerz/goautoneg"
	"k8s.io/klog/v2"

	"github.com/sqube/sqube/server/codecs"
	"github.com/sqube/sqube/server/openapi/internal/archive"
)

// respond sends a document. build returns it as a sequence of gzip members, and is called only if the client's copy is outdated.
func respond(w http.ResponseWriter, r *http.Request, contentType, etag string, build func() ([][]byte, error)) {
	h := w.Header()
	h.Set("Etag", `"`+etag+`"`)
	if notModified(r, etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	members, err := build()
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "OpenAPI document can't be made", "path", r.URL.Path)
		h.Del("Etag")
		http.Error(w, "the OpenAPI document can't be made: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	h.Set("Content-Type", contentType)
	var body io.Reader
	if codecs.AcceptsGzip(r) {
		length := 0
		for _, m := range members {
			length += len(m)
		}
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(length))
		body = archive.Reader(members)
	} else if body, err = archive.Expand(members); err != nil {
		klog.FromContext(r.Context()).Error(err, "OpenAPI document can't be expanded", "path", r.URL.Path)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if r.Method == http.MethodHead {
		return
	}
	if _, err := io.Copy(w, body); err != nil {
		klog.FromContext(r.Context()).V(4).Info("OpenAPI document was not read to its end", "path", r.URL.Path, "err", err)
	}
}

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
