package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"
	"sync/atomic"

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

func (e *Engine) openMemory(ctx context.Context) (err error) {
	source := dsn("/"+e.memory, "auto_vacuum(2)") + "&vfs=memdb&_txlock=immediate"
	// The driver closes failed connections. The database exists as long as one connection is open.
	if e.keepOpen, err = sql.Open("sqlite", source); err != nil {
		return err
	}
	e.keepOpen.SetMaxOpenConns(1)
	if err := e.keepOpen.PingContext(ctx); err != nil {
		return err
	}
	if e.writer, err = sql.Open("sqlite", source); err != nil {
		return err
	}
	e.writer.SetMaxOpenConns(1)
	e.readers = e.writer
	return e.migrate(ctx, migrations.Status{})
}
