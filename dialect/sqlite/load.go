package sqlite

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/sqube/sqube/dialect"
)

// Load implements dialect.Engine.
func (e *Engine) Load(ctx context.Context, counter dialect.Position, rows func(add func(*dialect.LogRow) error) error, past *dialect.Past) error {
	if err := dialect.CheckEmpty(ctx, e); err != nil {
		return err
	}
	var refused error // by rows or past
	err := e.transact(ctx, "load", func(tx *sql.Tx) error {
		insert, put := tx.StmtContext(ctx, e.write.insert), tx.StmtContext(ctx, e.write.putBlock)
		refused = rows(func(row *dialect.LogRow) error { return failure("load", add(ctx, insert, row)) })
		if refused == nil && past != nil {
			refused = past.Blocks(func(b *dialect.Block) error {
				_, err := put.ExecContext(ctx, b.Values()...)
				return failure("load", err)
			})
		}
		if refused != nil {
			return refused
		}
		return dialect.SetLoaded(counter, past, "x''", func(statement string, args ...any) error {
			_, err := tx.ExecContext(ctx, statement, args...)
			return err
		})
	})
	return cmp.Or(refused, err)
}

// Append adds rows to the log with their ids, and closes those that they replace. It leaves the counter alone: it is for a log that is
// built to be read, not served.
func (e *Engine) Append(ctx context.Context, rows []*dialect.LogRow) error {
	return e.transact(ctx, "append", func(tx *sql.Tx) error {
		closeRow, insert := tx.StmtContext(ctx, e.write.closeRow), tx.StmtContext(ctx, e.write.insert)
		for _, row := range rows {
			if row.Replaces != 0 {
				if _, err := closeRow.ExecContext(ctx, row.ID, row.Replaces); err != nil {
					return err
				}
			}
			added := *row
			if added.Operation == dialect.Delete {
				added.ReplacedBy = added.ID
			}
			if err := add(ctx, insert, &added); err != nil {
				return err
			}
		}
		return nil
	})
}
