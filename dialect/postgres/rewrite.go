package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
)

// The limits of one rewrite: rows, pages they are on, and bytes of values. A pause follows each.
const (
	rewriteRows, rewritePages, rewriteBytes = 200, 32, 1 << 20

	rewritePause = 20 * time.Millisecond
	// pageBytes is Postgres' default page size.
	pageBytes = 8192
)

// lastRows are the rows on the last pages of the table, from page From up to page To, exclusive.
type lastRows struct {
	From, To int64
	Left     int64 // how many more to rewrite at most: a row may end up where it was
}

func (x extent) lastRows() lastRows {
	if !x.tableTooLarge() {
		return lastRows{}
	}
	return lastRows{From: (x.Needed + x.Needed/4 + slack/2) / pageBytes, To: x.Table / pageBytes, Left: x.Rows}
}

// next returns the ids of some of them, or none if there are no more.
func (l *lastRows) next(ctx context.Context, c *conns) (ids []int64, err error) {
	const rows = "SELECT id, pg_column_size(value) FROM log WHERE ctid >= $1::tid AND ctid < $2::tid LIMIT $3"
	for l.To > l.From && l.Left > 0 {
		first := max(l.To-rewritePages, l.From)
		ids, err := some(ctx, c, rows, fmt.Sprintf("(%d,0)", first), fmt.Sprintf("(%d,0)", l.To), rewriteRows)
		if err != nil || len(ids) > 0 {
			l.Left -= int64(len(ids))
			return ids, err
		}
		l.To = first
	}
	return nil, nil
}

// largeRows are the rows whose values are in the TOAST table, after id After and up to id Last.
type largeRows struct{ After, Last int64 }

func (x extent) largeRows() largeRows {
	if !x.toastTooLarge() {
		return largeRows{}
	}
	return largeRows{Last: x.Last}
}

// next returns the ids of some of them, or none if there are no more.
func (l *largeRows) next(ctx context.Context, c *conns) (ids []int64, err error) {
	const rows = "SELECT id, pg_column_size(value) FROM log WHERE id > $1 AND id <= $2 AND pg_column_size(value) >= $3 ORDER BY id LIMIT $4"
	if l.After >= l.Last {
		return nil, nil
	}
	ids, err = some(ctx, c, rows, l.After, l.Last, largeValue, rewriteRows)
	l.After = l.Last
	if len(ids) > 0 {
		l.After = ids[len(ids)-1]
	}
	return ids, err
}

// some returns the first ids that the statement selects, as many as fit in one rewrite.
func some(ctx context.Context, c *conns, statement string, args ...any) (ids []int64, err error) {
	var id int64
	var size *int64 // deletions have no value
	bytes := int64(0)
	err = c.rows(ctx, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&id, &size}, func() error {
			if bytes < rewriteBytes {
				ids = append(ids, id)
			}
			if size != nil {
				bytes += *size
			}
			return nil
		})
		return err
	}, statement, args...)
	return ids, err
}

// rewriteSome deletes rows and inserts them again unchanged. An inserted row goes to free space; an updated one would stay on its
// page, and its large value would not move.
const rewriteSome = `
WITH moved AS (DELETE FROM log WHERE id = ANY ($1::bigint[]) RETURNING ` + dialect.Columns + `)
INSERT INTO log (` + dialect.Columns + `) SELECT * FROM moved`

// rewrite rewrites the rows with these ids. The lock on the counter blocks commits: to them, a row being rewritten would look
// replaced.
func (e *Engine) rewrite(ctx context.Context, ids []int64) error {
	batch := &pgx.Batch{}
	batch.Queue("SELECT " + e.capabilities.replan)
	batch.Queue("SELECT revision FROM counter FOR UPDATE")
	batch.Queue(rewriteSome, ids)
	return e.writer.send(ctx, batch)
}
