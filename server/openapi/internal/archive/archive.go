// Package archive is the file format of the embedded OpenAPI documents: one file of gzip members and an index of them.
//
// Members stay compressed on their way to the client: any sequence of members is a valid gzip stream (RFC 1952, section 2.2), so a
// document is sent as its pieces.
package archive

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// compressor is a reusable writer: a new one takes 800 KB.
type compressor struct {
	text bytes.Buffer
	gzip *gzip.Writer
}

func pool(level int) *sync.Pool {
	return &sync.Pool{New: func() any {
		z, err := gzip.NewWriterLevel(io.Discard, level)
		if err != nil {
			panic(err) // never: both levels below are valid
		}
		return &compressor{gzip: z}
	}}
}

var best, fast = pool(gzip.BestCompression), pool(gzip.DefaultCompression)

// Compress compresses text to one gzip member. The same text always gives the same bytes.
func Compress(text []byte) ([]byte, error) { return compress(text, fast) }

func compress(text []byte, pool *sync.Pool) ([]byte, error) {
	c := pool.Get().(*compressor)
	defer pool.Put(c)
	c.text.Reset()
	c.gzip.Reset(&c.text)
	if _, err := c.gzip.Write(text); err != nil {
		return nil, fmt.Errorf("compress OpenAPI: %w", err)
	}
	if err := c.gzip.Close(); err != nil {
		return nil, fmt.Errorf("compress OpenAPI: %w", err)
	}
	return bytes.Clone(c.text.Bytes()), nil
}

// Reader returns a reader of a sequence of members.
func Reader(members [][]byte) io.Reader {
	readers := make([]io.Reader, len(members))
	for i, m := range members {
		readers[i] = bytes.NewReader(m)
	}
	return io.MultiReader(readers...)
}

// Expand returns a reader of the text of a sequence of members.
func Expand(members [][]byte) (io.Reader, error) {
	z, err := gzip.NewReader(Reader(members))
	if err != nil {
		return nil, fmt.Errorf("expand OpenAPI: %w", err)
	}
	return z, nil
}

// Text returns the text of a sequence of members.
func Text(members [][]byte) ([]byte, error) {
	r, err := Expand(members)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("expand OpenAPI: %w", err)
	}
	return text, nil
}

// Writer collects members.
type Writer struct {
	data []byte
}

// Add compresses text into its own member and returns the member's position.
func (w *Writer) Add(text []byte) (Span, error) {
	if len(text) == 0 {
		return Span{}, nil
	}
	member, err := compress(text, best)
	if err != nil {
		return Span{}, err
	}
	s := Span{Offset: len(w.data), Length: len(member)}
	w.data = append(w.data, member...)
	return s, nil
}

// WriteFiles writes the data file and the index into the folder, which it creates if needed.
func (w *Writer) WriteFiles(folder string, index Index) error {
	b, err := json.MarshalIndent(index, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, IndexFile), append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, DataFile), w.data, 0o644)
}

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
