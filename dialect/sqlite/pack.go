package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/sqube/sqube/dialect"
)

// leavingRows selects what a batch of compaction moves, in the order that a dialect.Packer gets.
var leavingRows = dialect.SelectReplaced + "WHERE leaving.replaced_by IS NOT NULL AND leaving.replaced_by <= ? ORDER BY leaving.replaced_by, leaving.id LIMIT ?"

var errEnough = errors.New("the batch is full")

// move moves a batch of rows. They and their objects' blocks are read and packed before the transaction: only a purge would change them.
func (e *Engine) move(ctx context.Context, upTo int64, limit int, pack dialect.Packer) (n int, err error) {
	e.moving.Lock()
	defer e.moving.Unlock()
	rows, err := e.leaving(ctx, upTo, limit)
	if err != nil {
		return 0, err
	}
	last, err := e.lastBlocks(ctx, rows)
	if err != nil {
		return 0, err
	}
	blocks, err := pack(rows, last)
	if err != nil {
		return 0, err
	}
	return len(rows), e.transact(ctx, "compact", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, dialect.PackUpTo, upTo); err != nil {
			return err
		}
		ids := make([]int64, len(rows))
		for i, r := range rows {
			ids[i] = r.ID
		}
		if err := e.removeRows(ctx, tx, ids); err != nil {
			return err
		}
		put := tx.StmtContext(ctx, e.write.putBlock)
		for _, b := range blocks {
			if _, err := put.ExecContext(ctx, b.Values()...); err != nil {
				return err
			}
		}
		return nil
	})
}

func (e *Engine) leaving(ctx context.Context, upTo int64, limit int) (rows []*dialect.Replaced, err error) {
	bytes := 0
	err = e.Query(ctx, leavingRows, []any{upTo, limit}, func(row dialect.Row) error {
		r := &dialect.Replaced{}
		if err := r.Scan(row); err != nil {
			return err
		}
		rows = append(rows, r)
		if bytes += r.Bytes(); bytes >= batchBytes {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return rows, err
}

// lastBlocks returns the newest blocks of the objects of rows.
func (e *Engine) lastBlocks(ctx context.Context, rows []*dialect.Replaced) (last []*dialect.Block, err error) {
	const statement = "SELECT " + dialect.BlockColumns + ` FROM (SELECT value FROM json_each(?)) AS object, past
WHERE first_id = (SELECT first_id FROM past WHERE api_group = object.value ->> 0 AND resource = object.value ->> 1 AND past.key = object.value ->> 2 ORDER BY until DESC LIMIT 1)`
	objects, err := json.Marshal(dialect.Objects(rows))
	if err != nil {
		return nil, err
	}
	err = e.Query(ctx, statement, []any{string(objects)}, func(row dialect.Row) error {
		b := &dialect.Block{}
		last = append(last, b)
		return row.Scan(b.Columns()...)
	})
	return last, err
}

// Forget implements dialect.Engine.
func (e *Engine) Forget(ctx context.Context, upTo int64, limit int) (n int, err error) {
	err = e.reclaim(ctx, "forget", func() error {
		return e.transact(ctx, "forget", func(tx *sql.Tx) error {
			n, err = forget(ctx, tx, upTo, limit)
			return err
		})
	})
	return n, err
}

// forget removes blocks. Those above what is compacted stand for revisions that were skipped, which the engine has to know.
func forget(ctx context.Context, tx *sql.Tx, upTo int64, limit int) (n int, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT first_id, until, until_at, bytes FROM past WHERE until <= ? AND until <= (SELECT compacted FROM counter) ORDER BY until LIMIT ?", upTo, limit)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var ids []int64
	var until, untilAt int64
	for size := int64(0); size < batchBytes && rows.Next(); {
		var id, bytes int64
		if err := rows.Scan(&id, &until, &untilAt, &bytes); err != nil {
			return 0, err
		}
		ids, size = append(ids, id), size+bytes
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || len(ids) == 0 {
		return 0, err
	}
	if err := removeBlocks(ctx, tx, ids); err != nil {
		return 0, err
	}
	_, err = tx.ExecContext(ctx, "UPDATE counter SET history_from = ?1, history_at = ?2 WHERE history_from < ?1", until, untilAt)
	return len(ids), err
}

// removeBlocks removes blocks by the first of their revisions.
func removeBlocks(ctx context.Context, tx *sql.Tx, firsts []int64) error {
	for _, first := range firsts {
		if _, err := tx.ExecContext(ctx, "DELETE FROM past WHERE first_id = ?", first); err != nil {
			return err
		}
	}
	return nil
}

// purgeBlocks removes what a block of dialect.Engine.Purge stands for.
const purgeBlocks = "DELETE FROM past WHERE api_group = ? AND resource = ? AND key = ? AND until <= ?"

// Purge implements dialect.Engine.
func (e *Engine) Purge(ctx context.Context, b *dialect.Block) error {
	e.moving.Lock()
	defer e.moving.Unlock()
	return e.reclaim(ctx, "purge", func() error {
		return e.transact(ctx, "purge", func(tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, purgeBlocks, b.Group, b.Resource, b.Key, b.Until); err != nil {
				return err
			}
			if _, err := tx.StmtContext(ctx, e.write.putBlock).ExecContext(ctx, b.Values()...); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, noteErase)
			return err
		})
	})
}
