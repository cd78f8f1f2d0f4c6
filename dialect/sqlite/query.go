package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqube/sqube/dialect"
)

// Query implements dialect.Engine.
func (e *Engine) Query(ctx context.Context, statement string, args []any, row func(dialect.Row) error) error {
	rows, err := e.query(ctx, statement, args)
	if err != nil {
		return failure("query", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return cmp.Or(failure("query", rows.Err()), e.readMode.unchanged())
}

// Streams implements dialect.Engine: a result is produced row by row.
func (e *Engine) Streams() bool { return true }

func (e *Engine) query(ctx context.Context, statement string, args []any) (*sql.Rows, error) {
	if stmt, ok := e.prepared.Load(statement); ok {
		return stmt.(*sql.Stmt).QueryContext(ctx, args...)
	}
	if e.nPrepared.Load() >= maxPrepared {
		// Selectors have many shapes: other statements are parsed each time.
		return e.readers.QueryContext(ctx, statement, args...)
	}
	stmt, err := e.readers.PrepareContext(ctx, statement)
	if err != nil {
		return nil, err
	}
	if won, raced := e.prepared.LoadOrStore(statement, stmt); raced {
		_ = stmt.Close()
		stmt = won.(*sql.Stmt)
	} else {
		e.nPrepared.Add(1)
	}
	return stmt.QueryContext(ctx, args...)
}

// failure classifies a database error, unless it is nil. The error of a context is returned unchanged.
func failure(op string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	class := dialect.ErrUnavailable
	if errors.Is(err, sql.ErrNoRows) { // the counter has no row
		class = dialect.ErrCorrupt
	}
	if isFull(err) { // of a file that is not SQLite's
		class = dialect.ErrFull
	}
	switch codeOf(err) & 0xff {
	case sqlite3.SQLITE_INTERRUPT:
		return context.Canceled
	case sqlite3.SQLITE_FULL:
		class = dialect.ErrFull
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		class = dialect.ErrCorrupt
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
		// A value or statement is invalid or too large.
		return &dialect.Error{Op: op, Engine: "sqlite", Err: err}
	}
	return &dialect.Error{Op: op, Engine: "sqlite", Err: fmt.Errorf("%w: %w", class, err)}
}

// codeOf returns SQLite's extended code of an error, 0 if there is none. Its last byte is the primary code.
func codeOf(err error) int {
	if cause, ok := errors.AsType[*sqlite.Error](err); ok {
		return cause.Code()
	}
	return 0
}
