package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqube/sqube/dialect"
)

type writeStatements struct {
	bump, closeRow, insert, compacted, replaced, remove, putBlock *sql.Stmt
}

func (w *writeStatements) prepare(ctx context.Context, db *sql.DB) error {
	for _, p := range []struct {
		stmt **sql.Stmt
		text string
	}{
		{&w.bump, "UPDATE counter SET revision = revision + ?1, written_at = CASE WHEN written_at > ?3 THEN ?2 ELSE max(written_at, ?2) END RETURNING revision, written_at"},
		{&w.closeRow, "UPDATE log SET replaced_by = ?, padding = NULL WHERE id = ? AND replaced_by IS NULL"},
		{&w.insert, "INSERT INTO log (padding, " + dialect.Columns + ") VALUES (?" + strings.Repeat(", ?", strings.Count(dialect.Columns, ",")+1) + ")"},
		{&w.compacted, "UPDATE counter SET compacted = ?1 WHERE compacted < ?1"},
		{&w.replaced, replacedRows},
		{&w.remove, "DELETE FROM log WHERE id IN (SELECT value FROM json_each(?))"},
		{&w.putBlock, dialect.PutBlock},
	} {
		stmt, err := db.PrepareContext(ctx, p.text)
		if err != nil {
			return failure("prepare", err)
		}
		*p.stmt = stmt
	}
	return nil
}

// Commit implements dialect.Engine. If a sync fails, the group is not committed. The next one may still follow: it overwrites the
// failed one in the write-ahead log, so no gap is left on disk.
func (e *Engine) Commit(ctx context.Context, group []dialect.Write) (dialect.Committed, error) {
	return e.commitGroup(ctx, group, nil)
}

// CommitAll implements dialect.Engine.
func (e *Engine) CommitAll(ctx context.Context, group []dialect.Write, required []dialect.Required) (dialect.Committed, error) {
	return e.commitGroup(ctx, group, &all{required})
}

// all makes a group one that is committed as a whole or not at all.
type all struct{ required []dialect.Required }

func (e *Engine) commitGroup(ctx context.Context, group []dialect.Write, all *all) (dialect.Committed, error) {
	if !e.reserve.released.Load() || deletesOnly(group) && !e.reserve.held.Load() {
		committed, err := e.commit(ctx, group, all)
		if !errors.Is(err, dialect.ErrFull) {
			return committed, err
		}
	}
	return e.commitOnFullDisk(ctx, group, all)
}

func (e *Engine) commit(ctx context.Context, group []dialect.Write, all *all) (dialect.Committed, error) {
	committed := dialect.Committed{Landed: make([]bool, len(group))}
	err := e.transact(ctx, "commit", func(tx *sql.Tx) error {
		ctx := context.WithoutCancel(ctx) // otherwise the driver starts a goroutine for each statement; the end of ctx ends the transaction
		if all != nil {
			if err := requireAll(ctx, tx, all.required); err != nil {
				return err
			}
		}
		at, ahead := dialect.CommitTime(group)
		if err := tx.StmtContext(ctx, e.write.bump).QueryRowContext(ctx, len(group), at, ahead).Scan(&committed.Last, &committed.WrittenAt); err != nil {
			return err
		}
		if err := e.reach(committed.Last); err != nil {
			return err
		}
		closeRow, insert := tx.StmtContext(ctx, e.write.closeRow), tx.StmtContext(ctx, e.write.insert)
		for i := range group {
			if group[i].Superseded {
				continue
			}
			row := dialect.LogRow{ID: committed.Revision(i), Write: group[i]}
			row.WrittenAt = committed.WrittenAt
			var err error
			if committed.Landed[i], err = write(ctx, closeRow, insert, &row); err != nil {
				return err
			}
			if all != nil && !committed.Landed[i] {
				return dialect.ErrConflict
			}
		}
		return nil
	})
	if err == nil {
		e.reached(committed.Last)
		e.emptyGrownWAL(ctx)
	}
	return committed, err
}

// requireAll returns ErrConflict if an object is not as required.
func requireAll(ctx context.Context, tx *sql.Tx, required []dialect.Required) error {
	for _, r := range required {
		var id int64
		err := tx.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM log WHERE api_group = ? AND resource = ? AND key = ? AND replaced_by IS NULL",
			r.Group, r.Resource, r.Key).Scan(&id)
		if err != nil {
			return err
		}
		if id != r.ID {
			return dialect.ErrConflict
		}
	}
	return nil
}

// write appends row, or returns false if it conflicts.
func write(ctx context.Context, closeRow, insert *sql.Stmt, row *dialect.LogRow) (bool, error) {
	if row.Replaces != 0 {
		res, err := closeRow.ExecContext(ctx, row.ID, row.Replaces)
		if err != nil {
			return false, err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return false, err
		}
	}
	if row.Operation == dialect.Delete {
		row.ReplacedBy = row.ID
	}
	err := add(ctx, insert, row)
	// Only the index of live rows can be violated: the key exists. SQLite rolls back the statement, not the transaction.
	if codeOf(err) == sqlite3.SQLITE_CONSTRAINT_UNIQUE && row.Replaces == 0 {
		return false, nil
	}
	return err == nil, err
}

func add(ctx context.Context, insert *sql.Stmt, row *dialect.LogRow) error {
	var padding any
	if row.ReplacedBy == 0 {
		padding = make([]byte, integerBytes(row.ID))
	}
	_, err := insert.ExecContext(ctx, row.Values(padding)...)
	return err
}

// integerBytes returns how many bytes a non-negative n takes in a row (https://www.sqlite.org/fileformat2.html#record_format).
// The revision that replaces row n rarely takes more.
func integerBytes(n int64) int {
	switch {
	case n < 1<<7:
		return 1
	case n < 1<<15:
		return 2
	case n < 1<<23:
		return 3
	case n < 1<<31:
		return 4
	case n < 1<<47:
		return 6
	}
	return 8
}

// Exec runs a statement that changes the log, for repairs.
func (e *Engine) Exec(ctx context.Context, statement string, args ...any) error {
	return e.transact(ctx, "execute", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
}

// transact commits what do does. Without an error, that is in the files which a restart finds.
func (e *Engine) transact(ctx context.Context, op string, do func(*sql.Tx) error) error {
	if e.place.left.Load() {
		if err := e.InPlace(ctx); err != nil {
			return err
		}
	}
	tx, err := e.writer.BeginTx(ctx, nil)
	if err != nil {
		return e.writeFailure(op, err)
	}
	if err := do(tx); err != nil {
		_ = tx.Rollback()                         // the cause is returned; the driver rolls back a lost connection
		if ctx.Err() != nil && codeOf(err) == 0 { // not SQLite's: the transaction is done, or its statements are closed
			err = ctx.Err()
		}
		return e.writeFailure(op, err)
	}
	if err := tx.Commit(); err != nil {
		return e.writeFailure(op, err)
	}
	return e.InPlace(ctx)
}
