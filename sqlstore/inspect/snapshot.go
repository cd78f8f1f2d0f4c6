package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/sqube/sqube/dialect"
)

// Position returns where the log stands, and when its newest row was written (the zero time where there is none).
func Position(ctx context.Context, r dialect.Reader) (at dialect.Position, newest time.Time, err error) {
	var written *int64
	err = r.Query(ctx, "SELECT revision, compacted, (SELECT max(written_at) FROM log) FROM counter", nil, func(row dialect.Row) error {
		return row.Scan(&at.Revision, &at.Compacted, &written)
	})
	if written != nil {
		newest = time.UnixMilli(*written)
	}
	return at, newest, err
}

// RevisionAt returns the newest revision that was written at or before a time. It returns ErrForgotten where versions
// as old as that are no longer kept.
func RevisionAt(ctx context.Context, r dialect.Reader, at time.Time) (revision int64, err error) {
	b := newStatement(r, "SELECT coalesce(max(id), 0), coalesce(max(compacted), 0) FROM counter LEFT JOIN log ON written_at <= ")
	b.add(b.arg(at.UnixMilli()))
	var compacted int64
	err = r.Query(ctx, b.text.String(), b.args, func(row dialect.Row) error { return row.Scan(&revision, &compacted) })
	if err == nil && revision < compacted {
		err = ErrForgotten
	}
	return revision, err
}

// Snapshot calls yield with the rows of all objects that existed at a revision, as they were when they were live, in the
// order of their ids. It returns an error that wraps ErrForgotten for one that is no longer kept, errors of the database,
// and that of yield, which ends the walk.
func Snapshot(ctx context.Context, r dialect.Reader, revision int64, yield func(*dialect.LogRow) error) error {
	b := newStatement(r, "SELECT (SELECT compacted FROM counter), "+dialect.Columns+" FROM log WHERE operation <> 'delete'")
	b.add(" AND id <= " + b.arg(revision) + " AND (replaced_by IS NULL OR replaced_by > " + b.arg(revision) + ") ORDER BY id")
	return r.Query(ctx, b.text.String(), b.args, func(row dialect.Row) error {
		l := &dialect.LogRow{}
		var compacted int64
		if err := l.Scan(row, &compacted); err != nil {
			return err
		}
		if revision < compacted {
			return fmt.Errorf("revision %d: %w: the oldest is %d", revision, ErrForgotten, compacted)
		}
		l.ReplacedBy = 0 // not then
		return yield(l)
	})
}
