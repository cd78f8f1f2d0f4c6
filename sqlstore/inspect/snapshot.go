package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/sqube/sqube/dialect"
)

// Kept is what can be read from a log: its state at each revision from Compacted to Revision, and at each moment from Earliest on.
type Kept struct {
	dialect.Position
	Earliest, Newest time.Time // when Compacted and Revision were written; the zero time if nothing was
}

// Read returns what is kept.
func Read(ctx context.Context, r dialect.Reader) (k Kept, err error) {
	var earliest, newest int64
	const statement = "SELECT revision, compacted, coalesce((SELECT log.written_at FROM log WHERE id >= compacted ORDER BY id LIMIT 1), written_at), written_at FROM counter"
	err = r.Query(ctx, statement, nil, func(row dialect.Row) error {
		return row.Scan(&k.Revision, &k.Compacted, &earliest, &newest)
	})
	if newest > 0 {
		k.Earliest, k.Newest = time.UnixMilli(earliest), time.UnixMilli(newest)
	}
	return k, err
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
