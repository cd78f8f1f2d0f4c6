package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/sqube/sqube/server/openapi/internal/archive"
)

// document is an available OpenAPI v3 document.
type document struct {
	url    string       // with its hash
	remote http.Handler // serves the document; if nil, the fields below do
	etag   string
	build  func(form) ([][]byte, error)
}

// documents returns the OpenAPI v3 documents by path. Those of other servers hide custom group versions of the same name, and
// built-in group versions hide both.
func (s *Service) documents() map[string]document {
	docs := map[string]document{}
	for path, list := range byPath(s.definitions()) {
		etag := s.etag(list)
		docs[path] = document{url: location(path, etag), etag: etag, build: func(f form) ([][]byte, error) {
			return get(s.rendered, fmt.Sprint("v3 ", f, path, etag), func() ([][]byte, error) { return s.renderV3(path, list, f) })
		}}
	}
	for _, r := range slices.Backward(s.remotes()) {
		if d, ok := s.ofRemote(r); ok {
			docs[r.Path()] = d
		}
	}
	for path, d := range s.builtin.v3 {
		docs[path] = document{url: location(path, d.ETag), etag: d.ETag, build: func(f form) ([][]byte, error) {
			text := [][]byte{d.JSON.In(data)}
			if f != asProto {
				return text, nil
			}
			return get(s.rendered, fmt.Sprint("v3 ", f, path), func() ([][]byte, error) { return asV3Proto(text) })
		}}
	}
	return docs
}

// serveV3Index serves the paths and URLs of all documents, in handler3's format.
func (s *Service) serveV3Index(w http.ResponseWriter, r *http.Request) {
	list := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for path, d := range s.documents() {
		list.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: d.url}
	}
	text, err := json.Marshal(list)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", jsonContentType)
	w.Header().Set("Etag", `"`+hash(string(text))+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(text)) // too short to be worth a compressor, which takes 800 KB
}

// serveV3 serves one document. The response to a request with the document's hash may be cached forever; one with an old hash is
// redirected to the current one (KEP-2896).
func (s *Service) serveV3(w http.ResponseWriter, r *http.Request, path string) {
	d, ok := s.documents()[path]
	if !ok {
		w.WriteHeader(http.StatusNotFound) // without a body, like kube-openapi
		return
	}
	if d.remote != nil {
		d.remote.ServeHTTP(w, r)
		return
	}
	t, ok := negotiate(w, r, v3Types)
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if hash != d.etag {
			http.Redirect(w, r, d.url, http.StatusMovedPermanently)
			return
		}
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().UTC().AddDate(1, 0, 0).Format(http.TimeFormat))
	}
	respond(w, r, t.contentType, d.etag, func() ([][]byte, error) { return d.build(t.form) })
}

// location returns the URL of a document with its hash.
func location(document, etag string) string {
	u := url.URL{Path: path.Join(PathV3, document), RawQuery: url.Values{"hash": {etag}}.Encode()}
	return u.String()
}

// renderV3 builds the document of a custom group version.
func (s *Service) renderV3(path string, definitions []definition, f form) ([][]byte, error) {
	var parts []*spec3.OpenAPI
	for _, d := range definitions {
		d, err := s.withSchemas(d)
		if err != nil {
			return nil, err
		}
		if d == nil {
			continue
		}
		for _, v := range d.Spec.Versions {
			if !v.Served || path != "apis/"+d.Spec.Group+"/"+v.Name {
				continue
			}
			part, err := s.v3Of(d, v.Name)
			if err != nil {
				return nil, err
			}
			parts = append(parts, part)
		}
	}
	merged, err := builder.MergeSpecsV3(parts...)
	if err != nil {
		return nil, fmt.Errorf("build OpenAPI v3 of %s: %w", path, err)
	}
	return writeV3(path, merged, f)
}

func writeV3(path string, doc *spec3.OpenAPI, f form) ([][]byte, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("render OpenAPI v3 of %s: %w", path, err)
	}
	if f == asProto {
		if text, err = handler3.ToV3ProtoBinary(text); err != nil {
			return nil, fmt.Errorf("render OpenAPI v3 of %s as protobuf: %w", path, err)
		}
	}
	return compressed(text)
}

// asV3Proto converts a compressed document to protobuf. This form is not embedded, since none of Kubernetes' own clients
// requests it.
func asV3Proto(document [][]byte) ([][]byte, error) {
	text, err := archive.Text(document)
	if err != nil {
		return nil, err
	}
	message, err := handler3.ToV3ProtoBinary(text)
	if err != nil {
		return nil, fmt.Errorf("render OpenAPI v3 as protobuf: %w", err)
	}
	return compressed(message)
}

func compressed(text []byte) ([][]byte, error) {
	member, err := archive.Compress(text)
	return [][]byte{member}, err
}
