package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/sqube/sqube/dialect"
)

// Position returns the log's position, and when its newest row was written (the zero time if it is empty).
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

// RevisionAt returns the newest revision that was written at or before a time. It returns ErrForgotten if versions that old are
// no longer kept.
func RevisionAt(ctx context.Context, r dialect.Reader, at time.Time) (revision int64, err error) {
	var compacted int64
	statement := "SELECT coalesce(max(id), 0), coalesce(max(compacted), 0) FROM counter LEFT JOIN log ON written_at <= " + r.Placeholder(1)
	err = r.Query(ctx, statement, []any{at.UnixMilli()}, func(row dialect.Row) error { return row.Scan(&revision, &compacted) })
	if err == nil && revision < compacted {
		err = ErrForgotten
	}
	return revision, err
}

// Snapshot calls yield with the rows that were live at a revision, as they were then, ordered by id. It returns an error that
// wraps ErrForgotten for a revision that is no longer kept, database errors, and an error from yield, which ends the walk.
func Snapshot(ctx context.Context, r dialect.Reader, revision int64, yield func(*dialect.LogRow) error) error {
	statement := fmt.Sprintf("SELECT (SELECT compacted FROM counter), %s FROM log WHERE operation <> 'delete' AND id <= %s AND (replaced_by IS NULL OR replaced_by > %s) ORDER BY id",
		dialect.Columns, r.Placeholder(1), r.Placeholder(2))
	return r.Query(ctx, statement, []any{revision, revision}, func(row dialect.Row) error {
		l := &dialect.LogRow{}
		var compacted int64
		if err := l.Scan(row, &compacted); err != nil {
			return err
		}
		if revision < compacted {
			return fmt.Errorf("revision %d: %w: the oldest is %d", revision, ErrForgotten, compacted)
		}
		l.ReplacedBy = 0 // not yet, at that revision
		return yield(l)
	})
}
