package postgres

import (
	"cmp"
	"context"
	"iter"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
)

// Load implements dialect.Engine.
func (e *Engine) Load(ctx context.Context, position dialect.Position, rows func(add func(*dialect.LogRow) error) error, past *dialect.Past) error {
	if err := dialect.CheckEmpty(ctx, e); err != nil {
		return err
	}
	var refused error // by rows or past
	err := e.change(ctx, func(tx pgx.Tx) error {
		err := copyInto(ctx, tx, "log", dialect.Columns, rows, func(row *dialect.LogRow) []any { return row.Values() }, &refused)
		if err == nil && past != nil {
			err = copyInto(ctx, tx, "past", dialect.BlockColumns+", bytes", past.Blocks, (*dialect.Block).Values, &refused)
		}
		if err != nil {
			return err
		}
		return dialect.SetLoaded(position, past, "''::bytea", func(statement string, args ...any) error {
			_, err := tx.Exec(ctx, numbered(statement), args...)
			return err
		})
	})
	return cmp.Or(refused, e.failed(ctx, "load", err))
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
