package archive

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
