package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/sqube/sqube/dialect"
)

// SQLite leaves what was removed where it was: on pages that are free now, in parts of pages that are, and in the write-ahead log. If it
// overwrote everything at once (PRAGMA secure_delete), it would write nearly twice as much for objects of 6 KB. So everything is overwritten
// after a purge only.
//
// A purge notes that in a number in the header of the file, which SQLite leaves to applications (PRAGMA application_id): so it is done by the
// next process if this one is killed.
const toErase = 1

const noteErase = "PRAGMA application_id = 1"

// eraseBytes is how much is looked at in one transaction. Writers wait for it.
const eraseBytes = 512 << 10

// Erase implements dialect.Engine. It goes once through all pages, while none is moved to another place.
func (e *Engine) Erase(ctx context.Context) (erased dialect.Erased, err error) {
	e.erasing.Lock()
	defer e.erasing.Unlock()
	var note int
	if err := e.writer.QueryRowContext(ctx, "PRAGMA application_id").Scan(&note); err != nil || note != toErase {
		return erased, failure("erase", err)
	}
	err = e.Query(ctx, dialect.PurgedInLog, nil, func(row dialect.Row) error { return row.Scan(&erased.Kept) })
	if err != nil || e.memory != "" {
		return erased, err
	}
	erased.Left = e.removeCopies()
	if err := e.erasePages(ctx); err != nil {
		return erased, err
	}
	held, err := e.emptyWAL(ctx)
	if held {
		erased.Left = append(erased.Left, "the write-ahead log: "+e.longRead())
	}
	if erased.Again = erased.Kept > 0 || len(erased.Left) > 0; err != nil || erased.Again {
		return erased, e.writeFailure("erase", err)
	}
	_, err = e.writer.ExecContext(ctx, "PRAGMA application_id = 0")
	return erased, e.writeFailure("erase", err)
}

// erasePages overwrites the free parts of all pages. A file that other programs have created without auto_vacuum does not say what is on a
// page, so SQLite writes it as a whole.
func (e *Engine) erasePages(ctx context.Context) error {
	var mode int
	p := pages{}
	if err := e.writer.QueryRowContext(ctx, "SELECT auto_vacuum, page_size FROM pragma_auto_vacuum, pragma_page_size").Scan(&mode, &p.size); err != nil {
		return failure("erase", err)
	}
	if mode == 0 {
		_, err := e.writer.ExecContext(ctx, "VACUUM")
		return e.writeFailure("erase", err)
	}
	step := uint32(eraseBytes / p.size)
	for first, more := uint32(1), true; more; first += step {
		err := e.reclaim(ctx, "erase", func() error {
			return e.transact(ctx, "erase", func(tx *sql.Tx) (err error) {
				more, err = p.eraseRange(ctx, tx, first, first+step-1)
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eraseRange erases the pages from first to last in a transaction, and reports whether there are more.
func (p *pages) eraseRange(ctx context.Context, tx *sql.Tx, first, last uint32) (more bool, err error) {
	const some = `WITH RECURSIVE n(i) AS (SELECT ?1 UNION ALL SELECT i + 1 FROM n WHERE i < ?2)
SELECT pgno, data FROM n CROSS JOIN sqlite_dbpage WHERE pgno = i`
	var count uint32
	if err := tx.QueryRowContext(ctx, "PRAGMA page_count").Scan(&count); err != nil {
		return false, err
	}
	one, err := tx.PrepareContext(ctx, "SELECT data FROM sqlite_dbpage WHERE pgno = ?")
	if err != nil {
		return false, err
	}
	defer one.Close()
	p.data, p.changed = map[uint32][]byte{}, map[uint32]bool{}
	p.read = func(n uint32) (data []byte, err error) {
		err = one.QueryRowContext(ctx, n).Scan(&data)
		if errors.Is(err, sql.ErrNoRows) {
			err = wrong(n)
		}
		return data, err
	}
	rows, err := tx.QueryContext(ctx, some, first, min(last, count))
	if err != nil {
		return false, err
	}
	defer rows.Close()
	for rows.Next() {
		var n uint32
		var data []byte
		if err := rows.Scan(&n, &data); err != nil {
			return false, err
		}
		p.data[n] = data
	}
	if err := errors.Join(rows.Err(), rows.Close(), p.begin()); err != nil {
		return false, err
	}
	for n := first; n <= min(last, count); n++ {
		if err := p.erase(n); err != nil {
			return false, err
		}
	}
	for _, n := range slices.Sorted(maps.Keys(p.changed)) {
		if _, err := tx.ExecContext(ctx, "UPDATE sqlite_dbpage SET data = ? WHERE pgno = ?", p.data[n], n); err != nil {
			return false, err
		}
	}
	return last < count, nil
}

// emptyWAL empties the write-ahead log, unless reads hold it for long. Writers wait for short reads only.
func (e *Engine) emptyWAL(ctx context.Context) (held bool, err error) {
	const each, longest = 100 * time.Millisecond, 2 * time.Second
	for until := time.Now().Add(longest); ; time.Sleep(each) {
		if held, err = e.tryTruncateWAL(ctx, each); !held || err != nil || time.Now().After(until) {
			return held, err
		}
	}
}

// removeCopies removes the copies of the database from before its schema changed: they may have what was purged, too. It returns a
// sentence about each that it can't remove.
func (e *Engine) removeCopies() (left []string) {
	copies, _ := filepath.Glob(e.path + copySuffix + "*") // fails for a wrong pattern only
	for _, file := range copies {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			left = append(left, fmt.Sprintf("a copy of the database from before its schema changed: %v: remove it", err))
			continue
		}
		slog.Info("a copy of the database from before its schema changed was removed, since it may have had what was purged", "file", file)
	}
	return left
}
