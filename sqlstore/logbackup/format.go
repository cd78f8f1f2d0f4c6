package logbackup

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/sqube/sqube/dialect"
)

// format is the version of the file format. A later sqube writes a higher one.
const format = 1

// head is the first line of a snapshot, or of rows.
type head struct {
	Format int `json:"sqube_backup"`
	// UpTo is the revision of a snapshot. A segment has all rows after After up to UpTo. In a snapshot, After is the revision up to
	// which the place was complete before, 0 if unknown.
	After int64 `json:"after,omitempty"`
	UpTo  int64 `json:"up_to"`
	// ReadAt is when the database was read, in Unix milliseconds. WrittenAt is when the newest row of a snapshot was written, by the
	// server's clock.
	ReadAt    int64 `json:"read_at"`
	WrittenAt int64 `json:"written_at,omitempty"`
	// Followed is for how many milliseconds the place had been followed then, which no wall clock has a part in.
	Followed int64 `json:"followed,omitempty"`
}

// end is the last line of a part.
type end struct {
	Rows   int64  `json:"rows"`
	SHA256 string `json:"sha256"` // of all lines before it, in hexadecimal
}

// writer writes one part of a file: a head, rows and an end.
type writer struct {
	zip   *gzip.Writer
	lines *json.Encoder
	sum   hash.Hash
	rows  int64
}

func newWriter(to io.Writer, h head) (*writer, error) {
	w := &writer{zip: gzip.NewWriter(to), sum: sha256.New()}
	w.lines = json.NewEncoder(io.MultiWriter(w.zip, w.sum))
	w.lines.SetEscapeHTML(false)
	h.Format = format
	return w, w.lines.Encode(h)
}

func (w *writer) add(row *dialect.LogRow) error {
	w.rows++
	return w.lines.Encode(encodeRow(row))
}

func (w *writer) close() error {
	e := end{w.rows, hex.EncodeToString(w.sum.Sum(nil))}
	return errors.Join(w.lines.Encode(e), w.zip.Close())
}

// errDamaged means that a file is corrupt.
var errDamaged = errors.New("the file is damaged")

// withHint adds to the error about a damaged file what to do if nothing works with it.
func withHint(err error) error {
	if errors.Is(err, errDamaged) {
		return fmt.Errorf("%w: move it away to go on without it", err)
	}
	return err
}

// maxLine is the longest line, which fits the largest value of a database in JSON.
const maxLine = 256 << 20

// read calls begin with each head of a file, and row with each line after it (see decoded); either may be nil. If one returns an
// error, read returns it. If a checksum is wrong, it returns errDamaged after the rows. An error of from is returned as it is.
func read(from io.Reader, begin func(head) error, row func(line []byte) error) error {
	source := &source{Reader: from}
	err := readParts(source, begin, row)
	if source.failed != nil {
		return source.failed
	}
	return err
}

// source remembers why reading failed, which gzip and the scanner can't distinguish from a truncated file.
type source struct {
	io.Reader
	failed error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.failed = err
	}
	return n, err
}

func readParts(from io.Reader, begin func(head) error, row func(line []byte) error) error {
	zip, err := gzip.NewReader(from)
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	lines := bufio.NewScanner(zip)
	lines.Buffer(nil, maxLine)
	parts := 0
	for ; lines.Scan(); parts++ {
		if err := readPart(lines, begin, row); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	if parts == 0 {
		return fmt.Errorf("%w: it is empty", errDamaged)
	}
	return zip.Close()
}

// decoded returns a function that decodes a line and calls row.
func decoded(row func(*dialect.LogRow) error) func([]byte) error {
	return func(line []byte) error {
		l, err := decodeRow(line)
		if err != nil {
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
		return row(l)
	}
}

// readPart reads a part whose head has been scanned.
func readPart(lines *bufio.Scanner, begin func(head) error, row func([]byte) error) error {
	sum, rows := sha256.New(), int64(0)
	hashed := func() { sum.Write(lines.Bytes()); sum.Write([]byte("\n")) }
	var h head
	if err := json.Unmarshal(lines.Bytes(), &h); err != nil || h.Format == 0 {
		return fmt.Errorf("%w: it has no head", errDamaged)
	}
	if h.Format > format {
		return fmt.Errorf("a later sqube wrote it (format %d): use that version", h.Format)
	}
	if begin != nil {
		if err := begin(h); err != nil {
			return err
		}
	}
	for hashed(); lines.Scan(); hashed() {
		if bytes.HasPrefix(lines.Bytes(), []byte(`{"rows":`)) {
			var e end
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil || e != (end{rows, hex.EncodeToString(sum.Sum(nil))}) {
				return fmt.Errorf("%w: its checksum is wrong", errDamaged)
			}
			return nil
		}
		rows++
		if row != nil {
			if err := row(lines.Bytes()); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return fmt.Errorf("%w: it is truncated", errDamaged)
}
