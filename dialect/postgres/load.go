package postgres

import (
	"cmp"
	"context"
	"iter"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
)

// Load implements dialect.Engine.
func (e *Engine) Load(ctx context.Context, position dialect.Position, rows func(add func(*dialect.LogRow) error) error) error {
	if err := dialect.CheckEmpty(ctx, e); err != nil {
		return err
	}
	var refused error // by rows
	err := pgx.BeginFunc(ctx, e.writer, func(tx pgx.Tx) error {
		if err := copyRows(ctx, tx, rows, &refused); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE counter SET revision = $1, compacted = $2, packed = $2, history_from = $2, history_at = 0, written_at = greatest($3, (SELECT written_at FROM log ORDER BY id DESC LIMIT 1))",
			position.Revision, position.Compacted, time.Now().UnixMilli())
		return err
	})
	if err != nil {
		err = failure(ctx, "load", err)
	}
	return cmp.Or(refused, err)
}

// copyRows copies the rows that rows passes to its argument into the log. It returns an error from rows, and stores it in refused
// too.
func copyRows(ctx context.Context, tx pgx.Tx, rows func(add func(*dialect.LogRow) error) error, refused *error) error {
	var failed error // the error of rows, once that has returned
	next, stop := iter.Pull(func(yield func(*dialect.LogRow) bool) {
		failed = rows(func(row *dialect.LogRow) error {
			if !yield(row) {
				return context.Canceled // the copy has failed
			}
			return nil
		})
	})
	defer stop()
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"log"}, strings.Split(dialect.Columns, ", "), pgx.CopyFromFunc(func() ([]any, error) {
		row, ok := next()
		if !ok {
			return nil, failed
		}
		return row.Values(), nil
	}))
	if *refused = failed; failed != nil {
		return failed
	}
	return err
}
