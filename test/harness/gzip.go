package harness

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"testing"
)

// WriteGzip writes a compressed file, for the recordings in testdata.
func WriteGzip(path string, data []byte) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	return w.Close()
}

// ReadGzip returns what a compressed file has.
func ReadGzip(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	Must(t, err)
	defer f.Close()
	r, err := gzip.NewReader(f)
	Must(t, err)
	data, err := io.ReadAll(r)
	Must(t, err)
	return data
}
