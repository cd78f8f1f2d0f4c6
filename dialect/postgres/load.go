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
func (e *Engine) Load(ctx context.Context, position dialect.Position, rows func(add func(*dialect.LogRow) error) error, past *dialect.Past) error {
	if err := dialect.CheckEmpty(ctx, e); err != nil {
		return err
	}
	var refused error // by rows or past
	err := pgx.BeginFunc(ctx, e.writer, func(tx pgx.Tx) error {
		err := copyInto(ctx, tx, "log", dialect.Columns, rows, func(row *dialect.LogRow) []any { return row.Values() }, &refused)
		if err == nil && past != nil {
			err = copyInto(ctx, tx, "past", dialect.BlockColumns+", bytes", past.Blocks, (*dialect.Block).Values, &refused)
		}
		if err != nil {
			return err
		}
		return setLoaded(ctx, tx, position, past)
	})
	if err != nil {
		err = failure(ctx, "load", err)
	}
	return cmp.Or(refused, err)
}

// setLoaded sets the counter after a load.
func setLoaded(ctx context.Context, tx pgx.Tx, position dialect.Position, past *dialect.Past) error {
	from, at := past.Start(position)
	_, err := tx.Exec(ctx, `UPDATE counter SET revision = $1, compacted = $2, packed = $2, history_from = $3, history_at = $4,
written_at = greatest($5, (SELECT written_at FROM log ORDER BY id DESC LIMIT 1))`, position.Revision, position.Compacted, from, at, time.Now().UnixMilli())
	if err != nil || past == nil {
		return err
	}
	if _, err := tx.Exec(ctx, dialect.RemovePacked); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, dialect.RecordRestored("$1::bigint", "''::bytea"), past.UpTo+1)
	return err
}

// copyInto copies what all passes to its argument into columns of a table. It returns an error from all, and stores it in refused too.
func copyInto[R any](ctx context.Context, tx pgx.Tx, table, columns string, all func(add func(R) error) error, values func(R) []any, refused *error) error {
	var failed error // the error of all, once that has returned
	next, stop := iter.Pull(func(yield func(R) bool) {
		failed = all(func(row R) error {
			if !yield(row) {
				return context.Canceled // the copy has failed
			}
			return nil
		})
	})
	defer stop()
	_, err := tx.CopyFrom(ctx, pgx.Identifier{table}, strings.Split(columns, ", "), pgx.CopyFromFunc(func() ([]any, error) {
		row, ok := next()
		if !ok {
			return nil, failed
		}
		return values(row), nil
	}))
	if *refused = failed; failed != nil {
		return failed
	}
	return err
}
