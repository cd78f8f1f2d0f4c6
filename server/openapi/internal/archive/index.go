// Package archive is the file format of the embedded OpenAPI documents: one file of gzip members and an index of them.
//
// Members stay compressed on their way to the client: any sequence of members is a valid gzip stream (RFC 1952, section 2.2), so a
// document is sent as its pieces.
package archive

import "slices"

// Names of the two files.
const (
	DataFile  = "documents.bin"
	IndexFile = "index.json"
)

// Index is the content of the data file.
type Index struct {
	// Release is the Kubernetes release that the documents describe, such as "v1.37.2".
	Release string     `json:"release"`
	V3      []Document `json:"v3"`
	V2      Swagger    `json:"v2"`
}

// Document is one OpenAPI v3 document.
type Document struct {
	// Path is the part of the path after /openapi/v3/, such as "apis/apps/v1".
	Path   string `json:"path"`
	Owners Owners `json:"owners,omitempty"`
	// ETag is the SHA-512 of the JSON form, as kube-openapi computes it.
	ETag string `json:"etag"`
	JSON Span   `json:"json"`
}

// Swagger is the OpenAPI v2 document, in pieces.
type Swagger struct {
	// Head has every field except paths, definitions and parameters.
	Head      Span       `json:"head"`
	HeadProto Span       `json:"headProto"`
	Fragments []Fragment `json:"fragments"`
}

// Fragment is a part of the OpenAPI v2 document that is served with at least one of its owners.
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

// Owners are the group versions for which something is published, such as "apps/v1". Something without owners is always published.
type Owners []string

// Served reports whether one of the owners is served.
func (o Owners) Served(on map[string]bool) bool {
	return len(o) == 0 || slices.ContainsFunc(o, func(gv string) bool { return on[gv] })
}

// Span is the position of one gzip member in the data file; the zero Span is empty text.
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
