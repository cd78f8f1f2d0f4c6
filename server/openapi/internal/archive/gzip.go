package archive

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Compress makes one gzip member of text at the given level; the same text always gives the same bytes.
func Compress(text []byte, level int) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		return nil, fmt.Errorf("compress OpenAPI: %w", err)
	}
	if _, err := z.Write(text); err != nil {
		return nil, fmt.Errorf("compress OpenAPI: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("compress OpenAPI: %w", err)
	}
	return b.Bytes(), nil
}

// Expand returns a reader of the text of a sequence of members.
func Expand(members [][]byte) (io.Reader, error) {
	readers := make([]io.Reader, len(members))
	for i, m := range members {
		readers[i] = bytes.NewReader(m)
	}
	z, err := gzip.NewReader(io.MultiReader(readers...))
	if err != nil {
		return nil, fmt.Errorf("expand OpenAPI: %w", err)
	}
	return z, nil
}

// Writer collects members.
type Writer struct {
	data []byte
}

// Add compresses text into a member of its own, and says where it is.
func (w *Writer) Add(text []byte) (Span, error) {
	if len(text) == 0 {
		return Span{}, nil
	}
	member, err := Compress(text, gzip.BestCompression)
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
