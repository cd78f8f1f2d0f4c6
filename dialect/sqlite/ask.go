package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqube/sqube/dialect"
)

// Ask implements dialect.Engine, with SQLite's own functions: database/sql would run several statements, and could end one only until its
// first row.
//
// The connection is opened read-only and closed afterwards, can attach no other file, and runs a statement only if SQLite says that it
// writes nothing. The statement may read what authorize allows, and take what a budget does. A database in memory is copied first, since its
// writers would wait for readers.
func (e *Engine) Ask(ctx context.Context, statement string, columns func([]string), row func([]any) error) error {
	statement, _, _, err := dialect.Asked(statement)
	if err != nil {
		return &dialect.Error{Op: "query", Engine: "sqlite", Err: err}
	}
	if err := e.place.check(); err != nil {
		return &dialect.Error{Op: "query", Engine: "sqlite", Err: err}
	}
	a := &asking{tls: libc.NewTLS()}
	defer a.close()
	if err := a.open(e); err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	var release func()
	a.budget, release = limit(a.tls)
	ended := a.interruptAfter(ctx)
	err = a.run(statement, columns, row)
	ended()
	release()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil && a.budget.exceeded != nil:
		return &dialect.Error{Op: "query", Engine: "sqlite", Err: a.budget.exceeded}
	}
	return err
}

const interruptInterval = 100 * time.Millisecond

// asking is a connection for one statement. Its pointers are SQLite's.
type asking struct {
	tls       *libc.TLS
	db        uintptr
	prepared  uintptr
	budget    *budget
	allocated []uintptr
}

func (a *asking) close() {
	sqlite3.Xsqlite3_finalize(a.tls, a.prepared)
	sqlite3.Xsqlite3_close_v2(a.tls, a.db)
	for _, p := range a.allocated {
		libc.Xfree(a.tls, p)
	}
	a.tls.Close()
}

func (a *asking) open(e *Engine) (err error) {
	if err := registerFiles(); err != nil {
		return &dialect.Error{Op: "query", Engine: "sqlite", Err: fmt.Errorf("%w: %w", dialect.ErrUnavailable, err)}
	}
	if e.memory == "" {
		a.db, err = a.connect(e.path, askedVFS, sqlite3.SQLITE_OPEN_READONLY)
	} else {
		a.db, err = a.copyOf(e.memory)
	}
	if err != nil {
		return err
	}
	return a.restrict()
}

// connect opens a database. The caller closes it, even after an error.
func (a *asking) connect(name, vfs string, flags int32) (uintptr, error) {
	var zvfs uintptr
	if vfs != "" {
		zvfs = a.text(vfs)
	}
	at := a.pointer()
	code := sqlite3.Xsqlite3_open_v2(a.tls, a.text(name), at, flags|sqlite3.SQLITE_OPEN_FULLMUTEX, zvfs)
	db := load(at)
	sqlite3.Xsqlite3_busy_timeout(a.tls, db, int32(busyTimeout.Milliseconds()))
	return db, a.failure(db, code)
}

// copyOf copies the database in memory of that name.
func (a *asking) copyOf(name string) (copied uintptr, err error) {
	source, err := a.connect("/"+name, "memdb", sqlite3.SQLITE_OPEN_READONLY)
	defer func() { sqlite3.Xsqlite3_close_v2(a.tls, source) }()
	if err != nil {
		return 0, err
	}
	if copied, err = a.connect(":memory:", askedVFS, sqlite3.SQLITE_OPEN_READWRITE|sqlite3.SQLITE_OPEN_MEMORY); err != nil {
		return copied, err
	}
	main := a.text("main")
	if backup := sqlite3.Xsqlite3_backup_init(a.tls, copied, main, source, main); backup != 0 {
		sqlite3.Xsqlite3_backup_step(a.tls, backup, -1)
		sqlite3.Xsqlite3_backup_finish(a.tls, backup) // leaves the error in copied
	}
	return copied, a.failure(copied, sqlite3.Xsqlite3_errcode(a.tls, copied))
}

// interruptAfter interrupts what runs once ctx has ended, until ended is called: again and again, since SQLite forgets it before the
// statement's first step.
func (a *asking) interruptAfter(ctx context.Context) (ended func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tls := libc.NewTLS()
		defer tls.Close()
		for ended := ctx.Done(); ; {
			select {
			case <-ended:
				ended = nil
			case <-time.After(interruptInterval):
			case <-stop:
				return
			}
			if ctx.Err() != nil {
				a.budget.ended.Store(true)
				sqlite3.Xsqlite3_interrupt(tls, a.db)
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

func (a *asking) run(statement string, columns func([]string), row func([]any) error) error {
	text, at, tail := a.text(statement), a.pointer(), a.pointer()
	code := sqlite3.Xsqlite3_prepare_v2(a.tls, a.db, text, -1, at, tail)
	a.prepared = load(at)
	if err := a.failure(a.db, code); err != nil {
		return err
	}
	if a.prepared == 0 || sqlite3.Xsqlite3_stmt_readonly(a.tls, a.prepared) == 0 {
		return &dialect.Error{Op: "query", Engine: "sqlite", Err: dialect.ErrNotAsked}
	}
	if dialect.SkipBlank(libc.GoString(load(tail))) != "" {
		return &dialect.Error{Op: "query", Engine: "sqlite", Err: fmt.Errorf("there is more than one statement: %w", dialect.ErrNotAsked)}
	}
	names := make([]string, sqlite3.Xsqlite3_column_count(a.tls, a.prepared))
	for i := range names {
		names[i] = libc.GoString(sqlite3.Xsqlite3_column_name(a.tls, a.prepared, int32(i)))
	}
	columns(names)
	for {
		switch code := sqlite3.Xsqlite3_step(a.tls, a.prepared); code {
		case sqlite3.SQLITE_ROW:
			if a.rowBytes(len(names)) > dialect.MaxAskedRow {
				return &dialect.Error{Op: "query", Engine: "sqlite", Err: dialect.ErrLongRow}
			}
			values := make([]any, len(names))
			for i := range values {
				values[i] = a.value(int32(i))
			}
			if err := row(values); err != nil {
				return err
			}
		case sqlite3.SQLITE_DONE:
			return nil
		default:
			return a.failure(a.db, code)
		}
	}
}

// rowBytes returns the length of the current row, before anything is copied.
func (a *asking) rowBytes(columns int) (n int64) {
	for i := range int32(columns) {
		switch sqlite3.Xsqlite3_column_type(a.tls, a.prepared, i) {
		case sqlite3.SQLITE_TEXT, sqlite3.SQLITE_BLOB:
			n += int64(sqlite3.Xsqlite3_column_bytes(a.tls, a.prepared, i))
		}
	}
	return n
}

// value returns a column of the current row.
func (a *asking) value(i int32) any {
	switch sqlite3.Xsqlite3_column_type(a.tls, a.prepared, i) {
	case sqlite3.SQLITE_INTEGER:
		return sqlite3.Xsqlite3_column_int64(a.tls, a.prepared, i)
	case sqlite3.SQLITE_FLOAT:
		return sqlite3.Xsqlite3_column_double(a.tls, a.prepared, i)
	case sqlite3.SQLITE_TEXT:
		p := sqlite3.Xsqlite3_column_text(a.tls, a.prepared, i)
		return string(a.bytes(p, i))
	case sqlite3.SQLITE_BLOB:
		p := sqlite3.Xsqlite3_column_blob(a.tls, a.prepared, i)
		return slices.Clone(a.bytes(p, i))
	}
	return nil
}

func (a *asking) bytes(p uintptr, i int32) []byte {
	n := int(sqlite3.Xsqlite3_column_bytes(a.tls, a.prepared, i))
	if p == 0 || n == 0 {
		return []byte{}
	}
	return libc.GoBytes(p, n)
}

// failure returns the error with a code, nil if it is none. Those that the statement is to blame for wrap nothing: see dialect.Reader.
func (a *asking) failure(db uintptr, code int32) error {
	if code&0xff == sqlite3.SQLITE_OK {
		return nil
	}
	err := errors.New(libc.GoString(sqlite3.Xsqlite3_errmsg(a.tls, db)))
	switch code & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		err = fmt.Errorf("%w: %w", dialect.ErrCorrupt, err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_FULL, sqlite3.SQLITE_INTERRUPT:
		err = fmt.Errorf("%w: %w", dialect.ErrUnavailable, err)
	}
	return &dialect.Error{Op: "query", Engine: "sqlite", Err: err}
}

// text returns a copy of s for C. In s there is no NUL.
func (a *asking) text(s string) uintptr {
	p, err := libc.CString(s)
	if err != nil { // there is no memory
		panic(err)
	}
	a.allocated = append(a.allocated, p)
	return p
}

// pointer returns room for a pointer.
func (a *asking) pointer() uintptr {
	p := libc.Xcalloc(a.tls, 1, 8)
	a.allocated = append(a.allocated, p)
	return p
}

// load returns the pointer in such room.
func load(p uintptr) uintptr { return fetch[uintptr](p) }
