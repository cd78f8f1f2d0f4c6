package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
)

// compactRows removes a batch. The batch is an array, so that rows are found by the primary key whatever plan is chosen. It skips
// rows that another process is removing. The inner query has only the lower bound: without statistics, Postgres would assume that
// a range with two bounds is small, and sort it.
const compactRows = `
WITH removed AS (
  DELETE FROM log WHERE id = ANY (ARRAY(
    SELECT id FROM (SELECT id, replaced_by FROM log WHERE replaced_by IS NOT NULL AND replaced_by > $1
                    ORDER BY replaced_by LIMIT $3 FOR UPDATE SKIP LOCKED) AS oldest WHERE replaced_by <= $2))
  RETURNING replaced_by)
SELECT count(*), coalesce(max(replaced_by), 0) FROM removed`

// compacting is the progress of Compact: rows up to upTo have to be removed, and those up to done have been. Starting at done
// saves it from scanning removed rows, which may not be vacuumed for a long time.
type compacting struct{ upTo, done int64 }

// Compact implements dialect.Engine. The counter is updated separately, and only if it has to change: its row lock would delay
// every commit.
func (e *Engine) Compact(ctx context.Context, upTo int64, limit int, pack dialect.Packer) (n int, err error) {
	declare := `UPDATE counter SET compacted = $1 WHERE compacted < $1`
	if pack != nil {
		declare = packUpTo
	}
	if err := e.declare(ctx, declare, upTo); err != nil {
		return 0, e.failed(ctx, "compact", err)
	}
	if e.compacting.upTo != upTo {
		e.compacting = compacting{upTo: upTo}
	}
	var last int64
	if pack == nil {
		n, last, err = e.remove(ctx, upTo, limit)
	} else {
		n, last, err = e.move(ctx, upTo, limit, pack)
	}
	if err != nil {
		return 0, e.failed(ctx, "compact", err)
	}
	// Several rows may have the same replaced_by, and some of them may remain.
	e.compacting.done = max(0, last-1)
	return n, nil
}

// declare runs a statement that changes the counter.
func (e *Engine) declare(ctx context.Context, statement string, args ...any) error {
	if e.cluster == nil {
		return e.writer.exec(ctx, statement, args...)
	}
	batch := &pgx.Batch{}
	batch.Queue(statement, args...)
	batch.Queue(ensureOwned, e.cluster.fence)
	return e.writer.send(ctx, batch)
}

// remove removes a batch of rows, and returns the last of the revisions that replaced them.
func (e *Engine) remove(ctx context.Context, upTo int64, limit int) (n int, last int64, err error) {
	batch := &pgx.Batch{}
	batch.Queue("SELECT " + e.capabilities.replan)
	batch.Queue(compactRows, e.compacting.done, upTo, limit).QueryRow(func(row pgx.Row) error { return row.Scan(&n, &last) })
	return n, last, e.writer.send(ctx, batch)
}

// leavingRows selects what a batch of compaction moves, in the order that a dialect.Packer gets. About its inner query, see compactRows.
// The rows stay locked, so that all of them are removed: Shrink may be moving some, which are left for a later batch.
var leavingRows = dialect.SelectReplaced + `
JOIN (SELECT id, sum(size) OVER (ORDER BY replaced_by, id ROWS UNBOUNDED PRECEDING) - size AS before
      FROM (SELECT oldest.id, oldest.replaced_by, ` + dialect.PackedBytes("oldest") + ` AS size
            FROM (SELECT * FROM log WHERE replaced_by IS NOT NULL AND replaced_by > $1 ORDER BY replaced_by, id LIMIT $3 FOR UPDATE SKIP LOCKED) AS oldest
            WHERE oldest.replaced_by <= $2) AS sizes) AS batch ON batch.id = leaving.id
WHERE before < $4 ORDER BY leaving.replaced_by, leaving.id`

// batchBytes limits what is in memory of a batch that is moved: see dialect.Replaced.Bytes.
const batchBytes = 1 << 20

var (
	packUpTo = numbered(dialect.PackUpTo)
	putBlock = numbered(dialect.PutBlock)
)

// change runs do in a transaction that alone changes the table past: others wait, so that they see its blocks. It locks a row that nothing
// else changes while servers run. Not every server has advisory locks.
func (e *Engine) change(ctx context.Context, do func(pgx.Tx) error) error {
	return e.writer.transaction(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT version, "+e.capabilities.flush+" FROM schema_migrations FOR UPDATE"); err != nil {
			return err
		}
		if e.cluster != nil {
			if _, err := tx.Exec(ctx, ensureOwned, e.cluster.fence); err != nil {
				return err
			}
		}
		return do(tx)
	})
}

// failed is failure for what change and declare return.
func (e *Engine) failed(ctx context.Context, op string, err error) error {
	if e.cluster.isTaken(err) {
		return e.cluster.taken(op)
	}
	return failure(ctx, op, err)
}

// move moves a batch of rows, and returns the last of the revisions that replaced them.
func (e *Engine) move(ctx context.Context, upTo int64, limit int, pack dialect.Packer) (n int, lastBy int64, err error) {
	err = e.change(ctx, func(tx pgx.Tx) error {
		rows, err := leaving(ctx, tx, e.compacting.done, upTo, limit)
		if err != nil || len(rows) == 0 {
			return err
		}
		last, err := lastBlocks(ctx, tx, rows)
		if err != nil {
			return err
		}
		blocks, err := pack(rows, last)
		if err != nil {
			return err
		}
		n, lastBy = len(rows), rows[len(rows)-1].ReplacedBy
		ids := make([]int64, n)
		for i, r := range rows {
			ids[i] = r.ID
		}
		batch := &pgx.Batch{}
		batch.Queue("DELETE FROM log WHERE id = ANY ($1::bigint[])", ids)
		for _, b := range blocks {
			batch.Queue(putBlock, b.Values()...)
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	return n, lastBy, err
}

func leaving(ctx context.Context, tx pgx.Tx, done, upTo int64, limit int) ([]*dialect.Replaced, error) {
	found, err := tx.Query(ctx, leavingRows, done, upTo, limit, batchBytes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(row pgx.CollectableRow) (*dialect.Replaced, error) {
		r := &dialect.Replaced{}
		return r, r.Scan(row)
	})
}

// lastBlocks returns the newest blocks of the objects of rows.
func lastBlocks(ctx context.Context, tx pgx.Tx, rows []*dialect.Replaced) ([]*dialect.Block, error) {
	var objects [3][]string
	for _, object := range dialect.Objects(rows) {
		for i, text := range object {
			objects[i] = append(objects[i], text)
		}
	}
	found, err := tx.Query(ctx, `
SELECT b.* FROM unnest($1::text[], $2::text[], $3::text[]) AS o(api_group, resource, key), LATERAL (
  SELECT `+dialect.BlockColumns+` FROM past
  WHERE past.api_group = o.api_group AND past.resource = o.resource AND past.key = o.key ORDER BY until DESC LIMIT 1) AS b`,
		objects[0], objects[1], objects[2])
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(found, func(row pgx.CollectableRow) (*dialect.Block, error) {
		b := &dialect.Block{}
		return b, row.Scan(b.Columns()...)
	})
}

// Forget implements dialect.Engine.
func (e *Engine) Forget(ctx context.Context, upTo int64, limit int) (n int, err error) {
	err = e.change(ctx, func(tx pgx.Tx) error {
		var until, untilAt *int64
		err := tx.QueryRow(ctx, `
WITH removed AS (
  DELETE FROM past WHERE first_id = ANY (ARRAY(SELECT first_id FROM past WHERE until <= $1 ORDER BY until LIMIT $2)) RETURNING until, until_at)
SELECT count(*), max(until), max(until_at) FROM removed`, upTo, limit).Scan(&n, &until, &untilAt)
		if err != nil || n == 0 {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE counter SET history_from = $1, history_at = $2 WHERE history_from < $1", *until, *untilAt)
		return err
	})
	if err != nil {
		return 0, e.failed(ctx, "forget", err)
	}
	return n, nil
}

// EditPast implements dialect.Engine.
func (e *Engine) EditPast(ctx context.Context, condition string, args []any, edit func([]*dialect.Block) ([]int64, []*dialect.Block, error)) error {
	err := e.change(ctx, func(tx pgx.Tx) error {
		found, err := tx.Query(ctx, numbered(dialect.SelectEdited(condition)), args...)
		if err != nil {
			return err
		}
		blocks, err := pgx.CollectRows(found, func(row pgx.CollectableRow) (*dialect.Block, error) {
			b := &dialect.Block{}
			return b, b.Scan(row)
		})
		if err != nil || len(blocks) == 0 {
			return err
		}
		removed, put, err := edit(blocks)
		if err != nil {
			return err
		}
		batch := &pgx.Batch{}
		batch.Queue("DELETE FROM past WHERE first_id = ANY ($1::bigint[])", removed)
		for _, b := range put {
			batch.Queue(putBlock, b.Values()...)
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	return e.failed(ctx, "edit", err)
}

// Purge implements dialect.Engine.
func (e *Engine) Purge(ctx context.Context, b *dialect.Block) error {
	return e.failed(ctx, "purge", e.change(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM past WHERE api_group = $1 AND resource = $2 AND key = $3 AND until <= $4", b.Group, b.Resource, b.Key, b.Until)
		if err == nil {
			_, err = tx.Exec(ctx, putBlock, b.Values()...)
		}
		if err != nil {
			return err
		}
		err = pgx.BeginFunc(ctx, tx, func(note pgx.Tx) error {
			_, err := note.Exec(ctx, noteErase)
			return err
		})
		if unsupported(err) { // or the table belongs to another user, and so is for the other to vacuum
			err = nil
		}
		return err
	}))
}
