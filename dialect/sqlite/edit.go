package sqlite

import (
	"context"
	"database/sql"

	"github.com/sqube/sqube/dialect"
)

// EditPast implements dialect.Engine. The blocks are read before the transaction: nothing else changes them.
func (e *Engine) EditPast(ctx context.Context, condition string, args []any, edit func([]*dialect.Block) ([]int64, []*dialect.Block, error)) error {
	e.moving.Lock()
	defer e.moving.Unlock()
	var blocks []*dialect.Block
	err := e.Query(ctx, dialect.SelectEdited(condition), args, func(row dialect.Row) error {
		b := &dialect.Block{}
		blocks = append(blocks, b)
		return b.Scan(row)
	})
	if err != nil || len(blocks) == 0 {
		return err
	}
	removed, put, err := edit(blocks)
	if err != nil {
		return err
	}
	return e.reclaim(ctx, "edit", func() error {
		return e.transact(ctx, "edit", func(tx *sql.Tx) error {
			if err := removeBlocks(ctx, tx, removed); err != nil {
				return err
			}
			for _, b := range put {
				if _, err := tx.StmtContext(ctx, e.write.putBlock).ExecContext(ctx, b.Values()...); err != nil {
					return err
				}
			}
			return nil
		})
	})
}
