package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"sync/atomic"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqube/sqube/migrations"
)

// memories counts the in-memory databases that this process has created, to name them: SQLite finds them by name.
var memories atomic.Int64

// OpenMemory creates an empty in-memory database with its schema; closing it discards it. At 1 GiB, SQLite's limit, it is full
// like a disk.
//
// In memory, SQLite has no write-ahead log, and writers would wait for readers. So reads and writes share one connection.
func OpenMemory(ctx context.Context) (*Engine, error) {
	e := &Engine{memory: fmt.Sprintf("sqube-%d", memories.Add(1))}
	if err := e.openMemory(ctx); err != nil {
		_ = e.Close() // err is the cause
		return nil, fmt.Errorf("opening an in-memory database: %w", err)
	}
	return e, nil
}

// CopyMemory writes a snapshot of an in-memory database to the file at path, which must be empty.
func (e *Engine) CopyMemory(ctx context.Context, path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	to := url.URL{Scheme: "file", Path: path, RawQuery: "vfs=unix"} // otherwise it would be in memory, too
	_, err = e.writer.ExecContext(ctx, "VACUUM INTO ?", to.String())
	return err
}

// CloneMemory returns a copy of an in-memory database, in memory. It may be called in a bubble of testing/synctest that the original is not in.
func (e *Engine) CloneMemory(ctx context.Context) (*Engine, error) {
	fork := &Engine{memory: fmt.Sprintf("sqube-%d", memories.Add(1))}
	if err := fork.openCopy(ctx, e.memory); err != nil {
		return nil, fmt.Errorf("copying an in-memory database: %w", errors.Join(err, fork.Close()))
	}
	return fork, nil
}

func (e *Engine) openCopy(ctx context.Context, of string) error {
	if err := e.keepMemory(ctx); err != nil {
		return err
	}
	// The original's own connections may belong to another bubble.
	from, err := (&sqlite.Driver{}).Open(memoryDSN(of))
	if err != nil {
		return err
	}
	defer from.Close()
	if _, err := from.(driver.ExecerContext).ExecContext(ctx, "PRAGMA "+waitUpTo(0), nil); err != nil {
		return err
	}
	copying, err := from.(backuper).NewBackup(memoryDSN(e.memory))
	if err != nil {
		return err
	}
	for busy := true; busy; {
		_, err = copying.Step(-1)
		if code := codeOf(err) & 0xff; code != sqlite3.SQLITE_BUSY && code != sqlite3.SQLITE_LOCKED {
			busy = false
		}
		runtime.Gosched() // not a pause: another bubble's clock is not the original's
	}
	if err := errors.Join(err, copying.Finish()); err != nil {
		return err
	}
	return e.connectMemory(ctx)
}

// backuper is a connection of the driver.
type backuper interface {
	NewBackup(to string) (*sqlite.Backup, error)
}

// memoryDSN is the driver's name for a database in memory.
func memoryDSN(name string) string {
	return dsn("/"+name, "auto_vacuum(2)") + "&vfs=memdb&_txlock=immediate"
}

func (e *Engine) openMemory(ctx context.Context) (err error) {
	if err := e.keepMemory(ctx); err != nil {
		return err
	}
	return e.connectMemory(ctx)
}

// keepMemory opens the connection that keeps the database, which exists as long as one is open: the driver closes failed ones.
func (e *Engine) keepMemory(ctx context.Context) (err error) {
	if e.keepOpen, err = sql.Open("sqlite", memoryDSN(e.memory)); err != nil {
		return err
	}
	e.keepOpen.SetMaxOpenConns(1)
	return e.keepOpen.PingContext(ctx)
}

func (e *Engine) connectMemory(ctx context.Context) (err error) {
	if e.writer, err = sql.Open("sqlite", memoryDSN(e.memory)); err != nil {
		return err
	}
	e.writer.SetMaxOpenConns(1)
	e.readers = e.writer
	status, err := migrations.Check(ctx, e.writer, migrations.SQLite)
	if err != nil {
		return err
	}
	return e.migrate(ctx, status)
}
