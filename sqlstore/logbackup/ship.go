package logbackup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// The limits of a file: its rows, and the bytes of their values.
const (
	batchRows  = 5000
	batchBytes = 8 << 20
)

// batch is the result of one read.
type batch struct {
	rows   []*dialect.LogRow
	upTo   int64     // there are no other rows up to this revision
	readAt time.Time // when
	why    string    // why it does not continue what was shipped; "" if it does
}

// errEnough ends the reading of rows or of a file.
var errEnough = errors.New("enough")

// look checks, in one snapshot, whether the log continues what was shipped, and whether there are more rows.
func (f *Follower) look(ctx context.Context, reader dialect.Reader) (more bool, why string, err error) {
	const statement = "SELECT revision, compacted, (SELECT written_at FROM log WHERE id = ?), (SELECT uid FROM log WHERE id = ?), (SELECT min(id) FROM log WHERE id > ?) FROM counter"
	known := false
	err = reader.Query(ctx, statement, []any{f.last.id, f.last.id, f.shipped}, func(row dialect.Row) error {
		known = true
		var at dialect.Position
		var writtenAt, next *int64
		var uid *string
		if err := row.Scan(&at.Revision, &at.Compacted, &writtenAt, &uid, &next); err != nil {
			return err
		}
		switch {
		case at.Revision < f.seen:
			why = fmt.Sprintf("the database is at revision %d, behind the backup: it is another database, or an older copy", at.Revision)
		case writtenAt == nil && f.last.id > at.Compacted, writtenAt != nil && (*writtenAt != f.last.writtenAt || *uid != f.last.uid):
			why = "the database is not the one in the backup"
		case at.Compacted > f.seen:
			why = compactedReason(at.Compacted)
		case next != nil:
			more = true
		default:
			f.seen = at.Revision
		}
		return nil
	})
	if err == nil && !known {
		err = fmt.Errorf("the revision counter is missing: %w", dialect.ErrCorrupt)
	}
	return more, why, err
}

func compactedReason(compacted int64) string {
	return fmt.Sprintf("versions up to revision %d were compacted before they were backed up: the backup was interrupted for longer than --retention", compacted)
}

// readRows reads the rows after what was shipped. A transaction is all in one batch, since a restore can end with any file.
func (f *Follower) readRows(ctx context.Context, reader dialect.Reader) (*batch, error) {
	b, err := f.read(ctx, reader, f.batchRows, batchBytes)
	if err != nil || b.why != "" {
		return b, err
	}
	record, end := lastTransaction(b.rows)
	switch {
	case end <= b.upTo:
	case record > 0:
		b.upTo = b.rows[record].ID - 1
		b.rows = b.rows[:record]
	default:
		b, err = f.read(ctx, reader, int(end-b.rows[0].ID)+1, math.MaxInt)
	}
	return b, err
}

// lastTransaction returns the index of the last record of a transaction among rows, and the revision at which that ends; 0 if there is none.
func lastTransaction(rows []*dialect.LogRow) (record int, end int64) {
	for i, row := range slices.Backward(rows) {
		if end = history.TransactionEnd(row); end > 0 {
			return i, end
		}
	}
	return 0, 0
}

// read reads, in one snapshot, the rows after what was shipped, as many as fit.
func (f *Follower) read(ctx context.Context, reader dialect.Reader, mostRows, mostBytes int) (*batch, error) {
	statement := "SELECT (SELECT revision FROM counter), (SELECT compacted FROM counter), " + dialect.Columns + " FROM log WHERE id > ? ORDER BY id LIMIT " + fmt.Sprint(mostRows)
	b := &batch{readAt: time.Now()}
	bytes := 0
	err := reader.Query(ctx, statement, []any{f.shipped}, func(row dialect.Row) error {
		l := &dialect.LogRow{}
		var compacted int64
		if err := l.Scan(row, &b.upTo, &compacted); err != nil {
			return err
		}
		if compacted > f.seen {
			b.why = compactedReason(compacted)
			return errEnough
		}
		b.rows = append(b.rows, l)
		if bytes += len(l.Value); len(b.rows) == mostRows || bytes >= mostBytes {
			b.upTo = l.ID
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return b, nil
}

// ship writes a batch to the place.
func (f *Follower) ship(ctx context.Context, b *batch) error {
	g := f.current
	s := segment{after: f.shipped, upTo: b.upTo}
	s.Name = g.segmentPath(s.after, s.upTo, 0)
	err := f.put(ctx, &s, func(to io.Writer) error {
		w, err := newWriter(to, head{After: s.after, UpTo: s.upTo, ReadAt: b.readAt.UnixMilli(), Followed: f.followed().Milliseconds()})
		if err != nil {
			return err
		}
		for _, row := range b.rows {
			if err := w.add(row); err != nil {
				return err
			}
		}
		return w.close()
	})
	if err != nil {
		return err
	}
	g.segments = append(g.segments, s)
	f.shipped, f.seen = b.upTo, b.upTo
	f.last.set(b.rows[len(b.rows)-1])
	return f.merge(ctx)
}

// put writes the file of a segment and sets its size.
func (f *Follower) put(ctx context.Context, s *segment, write func(io.Writer) error) error {
	s.Size = 0
	return f.place.Put(ctx, s.Name, func(to io.Writer) error { return write(counting{to, &s.Size}) })
}

type counting struct {
	io.Writer
	n *int64
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	*c.n += int64(n)
	return n, err
}

// mergedFiles consecutive files of a level become one, unless it would be larger than mergedBytes.
const (
	mergedFiles = 64
	mergedBytes = 32 << 20
	topLevel    = 2
)

// merge merges the newest files of each level if there are enough of them.
func (f *Follower) merge(ctx context.Context) error {
	g := f.current
	for level := range topLevel {
		var size int64
		first := len(g.segments)
		for first > 0 && g.segments[first-1].level == level && len(g.segments)-first < f.mergeFiles {
			first--
			size += g.segments[first].Size
		}
		parts := g.segments[first:]
		if len(parts) < f.mergeFiles || size > mergedBytes {
			continue
		}
		s := segment{after: parts[0].after, upTo: parts[len(parts)-1].upTo, level: level + 1}
		s.Name = g.segmentPath(s.after, s.upTo, s.level)
		err := f.put(ctx, &s, func(to io.Writer) error {
			for _, part := range parts {
				if err := copyFile(ctx, to, f.place, part.Name); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		g.segments = append(g.segments[:first:first], s)
		if err := f.remove(ctx, parts); err != nil {
			return err // the next start removes the rest
		}
	}
	return nil
}

func (f *Follower) remove(ctx context.Context, files []segment) error {
	for _, s := range files {
		if err := f.place.Remove(ctx, s.Name); err != nil {
			return err
		}
	}
	return nil
}
