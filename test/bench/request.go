package main

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
)

// Media types of bodies.
const (
	mediaJSON          = "application/json"
	mediaProtobuf      = "application/vnd.kubernetes.protobuf"
	mediaProtobufWatch = "application/vnd.kubernetes.protobuf;stream=watch"
	mediaTable         = "application/json;as=Table;g=meta.k8s.io;v=v1"

	mediaMergePatch     = "application/merge-patch+json"
	mediaStrategicPatch = "application/strategic-merge-patch+json"
	mediaApplyPatch     = "application/apply-patch+yaml"
)

// request is what a client sends.
type request struct {
	method, path string
	accept       string // the media type of the response; JSON if empty
	encoding     string // the compression of the response; none if empty
	content      string // the media type of the body; JSON if empty
	body         []byte
}

func get(path string) request { return request{method: http.MethodGet, path: path} }
func post(path string, body []byte) request {
	return request{method: http.MethodPost, path: path, body: body}
}
func put(path string, body []byte) request {
	return request{method: http.MethodPut, path: path, body: body}
}

func patch(path, content string, body []byte) request {
	return request{method: http.MethodPatch, path: path, content: content, body: body}
}

// as returns the request for a response of this media type.
func (r request) as(accept string) request {
	r.accept = accept
	return r
}

// gzip returns the request for a compressed response.
func (r request) gzip() request {
	r.encoding = "gzip"
	return r
}

// http returns the request to the server at base.
func (r request) http(ctx context.Context, base string) (*http.Request, error) {
	h, err := http.NewRequestWithContext(ctx, r.method, base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	h.Header.Set("Accept", cmp.Or(r.accept, mediaJSON))
	if r.encoding != "" {
		h.Header.Set("Accept-Encoding", r.encoding)
	}
	if r.body != nil {
		h.Header.Set("Content-Type", cmp.Or(r.content, mediaJSON))
	}
	return h, nil
}
