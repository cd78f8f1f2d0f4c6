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
	"unicode/utf8"

	"github.com/sqube/sqube/dialect"
)

// format is the version of the file format. A later sqube writes a higher one.
const format = 1

// head is the first line of a snapshot, or of rows.
type head struct {
	Format int `json:"sqube_backup"`
	// UpTo is the revision of a snapshot. A segment has all rows after After up to UpTo.
	After int64 `json:"after,omitempty"`
	UpTo  int64 `json:"up_to"`
	// ReadAt is when the database was read, in Unix milliseconds. WrittenAt is when the newest row of a snapshot was written, by the
	// server's clock.
	ReadAt    int64 `json:"read_at"`
	WrittenAt int64 `json:"written_at,omitempty"`
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

// maxLine is the longest line, which fits the largest value of a database in JSON.
const maxLine = 256 << 20

// read calls begin with each head of a file, and row with each line after it (see decoded); either may be nil. If one returns an
// error, read returns it. If a checksum is wrong, it returns errDamaged after the rows.
func read(from io.Reader, begin func(head) error, row func(line []byte) error) error {
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
	return errors.Join(fmt.Errorf("%w: it is truncated", errDamaged), lines.Err())
}

// record is a row of the log as a line of JSON. Fields have the names of columns, except that a value that is not text is in
// sealed_value, in base64. replaced_by is not stored: it follows from later rows.
type record struct {
	ID           int64  `json:"id"`
	Replaces     int64  `json:"replaces,omitempty"`
	Operation    string `json:"operation"`
	Group        string `json:"api_group,omitempty"`
	Resource     string `json:"resource"`
	Key          string `json:"key"`
	Namespace    string `json:"namespace,omitempty"`
	Name         string `json:"name"`
	UID          string `json:"uid,omitempty"`
	WrittenAt    int64  `json:"written_at"`
	ExpiresAt    int64  `json:"expires_at,omitempty"`
	User         string `json:"user_name,omitempty"`
	FieldManager string `json:"field_manager,omitempty"`
	Labels       string `json:"labels,omitempty"`
	Fields       string `json:"fields,omitempty"`
	Value        string `json:"value,omitempty"`
	Sealed       []byte `json:"sealed_value,omitempty"`
}

func encodeRow(row *dialect.LogRow) *record {
	r := &record{
		ID: row.ID, Replaces: row.Replaces, Operation: string(row.Operation), Group: row.Group, Resource: row.Resource, Key: row.Key,
		Namespace: row.Namespace, Name: row.Name, UID: row.UID, WrittenAt: row.WrittenAt, ExpiresAt: row.ExpiresAt,
		User: row.User, FieldManager: row.FieldManager, Labels: row.Labels, Fields: row.Fields,
	}
	if utf8.Valid(row.Value) {
		r.Value = string(row.Value)
	} else {
		r.Sealed = row.Value
	}
	return r
}

func decodeRow(line []byte) (*dialect.LogRow, error) {
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return nil, err
	}
	row := &dialect.LogRow{ID: r.ID, Write: dialect.Write{
		Operation: dialect.Operation(r.Operation), Replaces: r.Replaces, Group: r.Group, Resource: r.Resource, Key: r.Key,
		Namespace: r.Namespace, Name: r.Name, UID: r.UID, WrittenAt: r.WrittenAt, ExpiresAt: r.ExpiresAt,
		User: r.User, FieldManager: r.FieldManager, Labels: r.Labels, Fields: r.Fields,
	}}
	switch {
	case r.Sealed != nil:
		row.Value = r.Sealed
	case row.Operation != dialect.Delete:
		row.Value = []byte(r.Value)
	}
	return row, nil
}
