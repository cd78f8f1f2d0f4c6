package logbackup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// History calls yield with every version of the object in the place, oldest first. It returns inspect.ErrUnknown if there is none, an
// error of yield, which ends the walk, and after all versions an error that wraps a Gap if files are gone.
//
// It skips an earlier database in the place, and states that a restore of an older one has replaced.
func History(ctx context.Context, place Place, o inspect.Object, yield func(*inspect.Version) error) error {
	v := newVersions(o, yield)
	var missing error
	err := v.read(ctx, place, func(b *Backup) []File {
		first := len(b.Spans) - 1
		for first > 0 && b.Spans[first-1].To <= b.Spans[first].From {
			first--
		}
		var files []File
		for _, span := range b.Spans[first:] {
			files = append(files, span.files(0)...)
			for _, part := range span.beyond {
				files = append(files, part.File)
			}
		}
		missing = lost(b.Spans[first:])
		return files
	})
	if missing != nil && (err == nil || errors.Is(err, inspect.ErrUnknown)) {
		err = missing
	}
	return err
}

// RevisionAt returns the revision of the log at a moment, from the files in a place.
func RevisionAt(ctx context.Context, place Place, moment time.Time) (m *inspect.Moment, err error) {
	err = Retry(func(int) error {
		b, err := Open(ctx, place)
		if err == nil {
			m, _, err = b.revisionAt(ctx, moment)
		}
		return err
	})
	return m, err
}

// At returns the object at a revision, or at the end of the transaction in which that is. It returns inspect.ErrAbsent if it did not exist
// then, and another error if the place does not hold the revision.
func At(ctx context.Context, place Place, o inspect.Object, revision int64) (*inspect.Version, error) {
	var found *inspect.Version
	end := revision
	v := newVersions(o, func(version *inspect.Version) error {
		if version.ID <= end {
			found = version
		}
		return nil
	})
	v.record = func(row *dialect.LogRow) {
		if row.ID <= revision {
			end = max(end, history.TransactionEnd(row))
		}
	}
	var missing error
	err := v.read(ctx, place, func(b *Backup) []File {
		var span *Span
		if span, missing = b.at(revision); missing != nil {
			return nil
		}
		return span.files(revision)
	})
	switch {
	case missing != nil:
		return nil, missing
	case err != nil && !errors.Is(err, inspect.ErrUnknown):
		return nil, err
	case found == nil || found.Operation == dialect.Delete:
		return nil, inspect.ErrAbsent
	}
	return found, nil
}

// files returns the files for a revision; 0 for all revisions.
func (s *Span) files(revision int64) []File {
	files := []File{s.snapshot}
	for _, part := range s.chain {
		if revision == 0 || part.after < revision {
			files = append(files, part.File)
		}
	}
	return files
}

// versions collects the versions of an object from files.
type versions struct {
	object inspect.Object
	name   []byte // in a line
	yield  func(*inspect.Version) error
	last   dialect.LogRow // of the object; its id is 0 before the first
	// record is called with the records of transactions too, in order, unless it is nil.
	record func(*dialect.LogRow)
}

// recordLine is what lines with records of transactions contain.
var recordLine = []byte(`"resource":"` + history.Transactions.Name + `"`)

func newVersions(o inspect.Object, yield func(*inspect.Version) error) *versions {
	var name bytes.Buffer
	lines := json.NewEncoder(&name) // with the settings of newWriter
	lines.SetEscapeHTML(false)
	_ = lines.Encode(struct {
		Name string `json:"name"`
	}{o.Name}) // a string can always be encoded
	return &versions{object: o, name: bytes.Trim(name.Bytes(), "{}\n"), yield: yield}
}

// read reads the files that choose returns. If one is gone, it calls choose again, and continues after what it has read.
func (v *versions) read(ctx context.Context, place Place, choose func(*Backup) []File) error {
	err := Retry(func(int) error {
		b, err := Open(ctx, place)
		if err == nil {
			err = v.readAll(ctx, place, choose(b))
		}
		return err
	})
	if err == nil && v.last.ID == 0 {
		err = inspect.ErrUnknown
	}
	return err
}

func (v *versions) readAll(ctx context.Context, place Place, files []File) error {
	row := decoded(v.row)
	for _, file := range files {
		err := readFile(ctx, place, file.Name, nil, func(line []byte) error {
			if !bytes.Contains(line, v.name) && (v.record == nil || !bytes.Contains(line, recordLine)) {
				return nil
			}
			return row(line)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// row handles a row of any object. Rows come in the order of their ids, but some more than once.
func (v *versions) row(l *dialect.LogRow) error {
	if v.record != nil {
		v.record(l)
	}
	o := &v.object
	if l.ID <= v.last.ID || l.Name != o.Name || l.Group != o.Resource.Group || l.Resource != o.Resource.Name || !slices.Contains(o.Namespaces, l.Namespace) {
		return nil
	}
	version := &inspect.Version{LogRow: *l}
	if l.Replaces == v.last.ID {
		version.Previous = v.last.Value
	}
	v.last = *l
	return v.yield(version)
}
