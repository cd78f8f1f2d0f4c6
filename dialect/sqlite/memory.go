package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
)

// memories counts the databases in memory that this process has created. SQLite finds them by name.
var memories atomic.Int64

// OpenMemory creates an empty database in memory, with its schema, which is lost when it is closed. At 1 GiB, SQLite's
// limit, it is full like a disk.
//
// In memory SQLite has no write-ahead log, so writers would wait for readers. So there is one connection, and reads and
// writes take turns.
func OpenMemory(ctx context.Context) (*Engine, error) {
	return openMemory(ctx, fmt.Sprintf("sqube-%d", memories.Add(1)))
}

func openMemory(ctx context.Context, name string) (*Engine, error) {
	e := &Engine{}
	if err := e.openMemory(ctx, name); err != nil {
		_ = e.Close() // the cause of failing to open is what counts
		return nil, fmt.Errorf("opening a database in memory: %w", err)
	}
	return e, nil
}

func (e *Engine) openMemory(ctx context.Context, name string) (err error) {
	source := dsn("/"+name, "auto_vacuum(2)") + "&vfs=memdb&_txlock=immediate"
	// The driver closes connections that fail. The database exists as long as one connection is open.
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
	_, err = e.migrate(ctx)
	return err
}
