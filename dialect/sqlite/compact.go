package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/sqube/sqube/dialect"
)

// batchBytes limits a batch of compaction: freeing a page takes some microseconds, during which nothing can be written.
const batchBytes = 1 << 20

// replacedRows selects the rows that a batch may remove. SQLite gets the length of a value without reading it.
const replacedRows = "SELECT id, octet_length(value) FROM log WHERE replaced_by IS NOT NULL AND replaced_by <= ? ORDER BY replaced_by LIMIT ?"

// maxFreePages limits how many pages stay free while rows are being removed: for each page that a vacuum moves, SQLite may search
// the list of all free ones.
const maxFreePages = 8 << 10

// Compact implements dialect.Engine.
func (e *Engine) Compact(ctx context.Context, upTo int64, limit int, pack dialect.Packer) (n int, err error) {
	err = e.reclaim(ctx, "compact", func() error {
		if pack == nil {
			n, err = e.remove(ctx, upTo, limit)
		} else {
			n, err = e.move(ctx, upTo, limit, pack)
		}
		return err
	})
	if err == nil {
		err = e.reclaim(ctx, "vacuum", func() error {
			// The rows of a batch take more space than their values.
			_, err := e.vacuum(ctx, func(_, _ int64) int64 { return maxFreePages }, 4*batchBytes)
			return err
		})
	}
	return n, err
}

func (e *Engine) remove(ctx context.Context, upTo int64, limit int) (n int, err error) {
	err = e.transact(ctx, "compact", func(tx *sql.Tx) error {
		if _, err := tx.StmtContext(ctx, e.write.compacted).ExecContext(ctx, upTo); err != nil {
			return err
		}
		batch, err := e.batch(ctx, tx, upTo, limit)
		if err != nil {
			return err
		}
		n = len(batch)
		return e.removeRows(ctx, tx, batch)
	})
	return n, err
}

// removeRows removes rows of the log by their ids.
func (e *Engine) removeRows(ctx context.Context, tx *sql.Tx, ids []int64) error {
	list, err := json.Marshal(ids)
	if err == nil {
		_, err = tx.StmtContext(ctx, e.write.remove).ExecContext(ctx, string(list))
	}
	return err
}

// batch returns the ids of rows to remove, at least one if there are any.
func (e *Engine) batch(ctx context.Context, tx *sql.Tx, upTo int64, limit int) (ids []int64, err error) {
	rows, err := tx.StmtContext(ctx, e.write.replaced).QueryContext(ctx, upTo, limit)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for bytes := int64(0); bytes < batchBytes && rows.Next(); {
		var id int64
		var length sql.NullInt64 // deletions have no value
		if err := rows.Scan(&id, &length); err != nil {
			return nil, err
		}
		ids, bytes = append(ids, id), bytes+length.Int64
	}
	return ids, rows.Err()
}

// shrinkBytes is how much Shrink returns at a time: enough to keep up, and little enough to block the writer for only a few
// milliseconds.
const shrinkBytes = 1 << 20

// keptPages returns how many pages of a file may stay free. A file that grows again needs them, but they must not be half of a
// small file.
func keptPages(pages, pageSize int64) int64 { return min(pages/8, 2*shrinkBytes/pageSize) }

// Shrink implements dialect.Engine by an incremental vacuum.
func (e *Engine) Shrink(ctx context.Context) (more bool, err error) {
	err = e.reclaim(ctx, "vacuum", func() error {
		more, err = e.vacuum(ctx, keptPages, shrinkBytes)
		return err
	})
	if err == nil && !more {
		e.emptyIdleWAL(ctx)
		e.restoreReserve(ctx)
	}
	return more, err
}

// vacuum returns up to so many bytes of the free pages that need not be kept to the file system, and reports whether it returned
// any. It can't in a file that was created without auto_vacuum, by other programs, and does not while pages are erased.
func (e *Engine) vacuum(ctx context.Context, kept func(pages, pageSize int64) int64, most int64) (some bool, err error) {
	if !e.erasing.TryLock() {
		return false, nil
	}
	defer e.erasing.Unlock()
	var pages, free, pageSize int64
	err = e.writer.QueryRowContext(ctx, "SELECT page_count, freelist_count, page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size").Scan(&pages, &free, &pageSize)
	if err != nil {
		return false, failure("vacuum", err)
	}
	surplus := free - kept(pages, pageSize)
	if surplus <= 0 {
		return false, nil
	}
	// The pragma frees one page per step, so its result has to be iterated.
	rows, err := e.writer.QueryContext(ctx, fmt.Sprintf("PRAGMA incremental_vacuum(%d)", min(surplus, most/pageSize)))
	if err != nil {
		return false, e.writeFailure("vacuum", err)
	}
	defer rows.Close()
	for rows.Next() {
		some = true
	}
	return some, e.writeFailure("vacuum", rows.Err())
}
