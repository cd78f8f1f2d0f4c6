package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sqube/sqube/dialect"
)

// inspectTime limits the check of a file before it is opened. It is enough for
// some hundred megabytes; damage beyond that is found when it is read.
const inspectTime = 500 * time.Millisecond

// inspect fails if the file at path can't be served. It does not change the
// file.
func inspect(ctx context.Context, path string) (err error) {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return err
	}
	mode := "&mode=ro" // or to close it would change it
	if unfinished, err := os.Stat(path + "-journal"); err == nil && unfinished.Size() > 0 {
		mode = existing // power failed while the file was made, and SQLite undoes that
	}
	db, err := sql.Open("sqlite", dsn(path, "busy_timeout(5000)")+mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := checkHeader(ctx, db); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, inspectTime)
	defer cancel()
	var found string
	err = db.QueryRowContext(bounded, "PRAGMA quick_check(1)").Scan(&found)
	switch {
	case bounded.Err() != nil:
		return ctx.Err()
	case err == nil && found != "ok":
		return fmt.Errorf("%w: %s", dialect.ErrCorrupt, found)
	}
	return err
}

// checkpointLeftover moves what a process that was killed left in the write-ahead log into
// the file. It may have been killed because a sync had failed. The kernel then
// takes what was not written for written, so that another sync of the log says
// nothing: only what is written anew is known to be on the disk.
func (e *Engine) checkpointLeftover(ctx context.Context) error {
	if size, err := e.walSize(); err != nil || size == 0 {
		return err
	}
	_, err := e.writer.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}
