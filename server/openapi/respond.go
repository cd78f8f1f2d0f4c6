package openapi

import (
	"io"
	"net/http"
	"strconv"

	"k8s.io/klog/v2"

	"github.com/sqube/sqube/server/openapi/internal/archive"
)

// respond sends a document. build returns it as a sequence of gzip members, and is called only if the client's copy is outdated.
func respond(w http.ResponseWriter, r *http.Request, contentType, etag string, build func() ([][]byte, error)) {
	if upToDate(w, r, etag) {
		return
	}
	h := w.Header()
	members, err := build()
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "OpenAPI document can't be made", "path", r.URL.Path)
		h.Del("Etag")
		http.Error(w, "the OpenAPI document can't be made: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	h.Set("Content-Type", contentType)
	if acceptsGzip(r) {
		length := 0
		for _, m := range members {
			length += len(m)
		}
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(length))
		send(w, r, members)
		return
	}
	text, err := archive.Expand(members)
	if err != nil {
		klog.FromContext(r.Context()).Error(err, "OpenAPI document can't be expanded", "path", r.URL.Path)
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if r.Method == http.MethodHead {
		return
	}
	if _, err := io.Copy(w, text); err != nil {
		klog.FromContext(r.Context()).V(4).Info("OpenAPI document was not read to its end", "path", r.URL.Path, "err", err)
	}
}

// respondText sends a document that is too short to be worth a compressor, which takes 800 KB.
func respondText(w http.ResponseWriter, r *http.Request, contentType, etag string, text []byte) {
	if upToDate(w, r, etag) {
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	send(w, r, [][]byte{text})
}

// upToDate sets the ETag, which every response has. If the client's copy is current, it responds with 304 and returns true.
func upToDate(w http.ResponseWriter, r *http.Request, etag string) bool {
	w.Header().Set("Etag", `"`+etag+`"`)
	if !notModified(r, etag) {
		return false
	}
	w.WriteHeader(http.StatusNotModified)
	return true
}

func send(w http.ResponseWriter, r *http.Request, members [][]byte) {
	if r.Method == http.MethodHead {
		return
	}
	for _, m := range members {
		if _, err := w.Write(m); err != nil {
			klog.FromContext(r.Context()).V(4).Info("OpenAPI document was not read to its end", "path", r.URL.Path, "err", err)
			return
		}
	}
}
