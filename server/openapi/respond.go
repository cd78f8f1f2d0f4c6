package openapi

import (
	"io"
	"net/http"
	"strconv"

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
