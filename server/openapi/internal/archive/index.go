// Package archive is the file format of the embedded OpenAPI documents: one file of gzip members and an index of them.
//
// Members are kept compressed all the way to the client: RFC 1952 (2.2) makes any sequence of members one valid gzip
// stream, so a document of several pieces is sent by sending the pieces.
package archive

import "slices"

// Names of the two files.
const (
	DataFile  = "documents.bin"
	IndexFile = "index.json"
)

// Index says what lies where in the data file.
type Index struct {
	// Release is the Kubernetes release that the documents describe, such as "v1.36.0".
	Release string     `json:"release"`
	V3      []Document `json:"v3"`
	V2      Swagger    `json:"v2"`
}

// Document is one OpenAPI v3 document.
type Document struct {
	// Path is what follows /openapi/v3/, such as "apis/apps/v1".
	Path   string `json:"path"`
	Owners Owners `json:"owners,omitempty"`
	// ETag is the SHA-512 of the JSON form, as kube-openapi computes it.
	ETag string `json:"etag"`
	JSON Span   `json:"json"`
}

// Swagger is the OpenAPI v2 document, in pieces.
type Swagger struct {
	// Head has every field but paths, definitions and parameters.
	Head      Span       `json:"head"`
	HeadProto Span       `json:"headProto"`
	Fragments []Fragment `json:"fragments"`
}

// Fragment is the part of the OpenAPI v2 document that is there when at least one of its owners is served.
type Fragment struct {
	Owners Owners `json:"owners,omitempty"`
	// Paths, Definitions and Parameters are members of the JSON objects of these names, without braces.
	Paths       Span `json:"paths"`
	Definitions Span `json:"definitions"`
	Parameters  Span `json:"parameters"`
	// Proto is a Document message with only these three fields.
	Proto Span `json:"proto"`
	// Names lists the keys of all three objects, one per line.
	Names Span `json:"names"`
}

// Owners are the group versions because of which something is published, such as "apps/v1"; none means always.
type Owners []string

// Served reports whether one of the owners is switched on.
func (o Owners) Served(on map[string]bool) bool {
	return len(o) == 0 || slices.ContainsFunc(o, func(gv string) bool { return on[gv] })
}

// Span is the place of one gzip member in the data file; the zero Span is empty text.
type Span struct {
	Offset int `json:"o,omitempty"`
	Length int `json:"n,omitempty"`
}

// In returns the member itself, sharing data's memory; nil for the zero Span.
func (s Span) In(data []byte) []byte {
	if s.Length == 0 {
		return nil
	}
	return data[s.Offset : s.Offset+s.Length]
}
