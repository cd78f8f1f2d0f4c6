package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
)

// memories counts the databases in memory that this process has made. SQLite finds them by name.
var memories atomic.Int64

// OpenMemory makes an empty database in memory, with its schema. It is gone when it is closed. It holds 1 GiB at the most,
// SQLite's own limit, and is then full as a disk is.
//
// In memory SQLite has no write-ahead log: a writer would have to wait until no one reads. So there is one connection, and
// reads and writes take turns.
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
	// The driver closes a connection when something goes wrong with it. What is in memory stays as long as another is open.
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
