package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"

	"modernc.org/sqlite"

	"github.com/sqube/sqube/dialect"
)

// place is where the files of an open database were when it was opened. SQLite keeps using files that were deleted or moved
// since: what it commits to them is gone, or elsewhere, after a restart. A crash needs the -wal, and other processes find commits
// by the -shm.
type place struct {
	files []placed
	// left is set if a file was not in its place when InPlace was last called.
	left atomic.Bool
}

// placed is a path and the file that it has to lead to.
type placed struct {
	path string
	file fs.FileInfo
	// needed says what a restart needs the file for.
	needed string
}

// remember records the files of the open database at path. given is the path by which it was found.
func (p *place) remember(given, path string) error {
	const whole, commits, index = "the database", "the last commits", "where others find the last commits"
	paths := []placed{{path: path, needed: whole}, {path: path + "-wal", needed: commits}, {path: path + "-shm", needed: index}}
	if given != path {
		paths = append(paths, placed{path: given, needed: whole})
	}
	for _, f := range paths {
		file, err := os.Stat(f.path)
		if err != nil {
			return err
		}
		f.file = file
		p.files = append(p.files, f)
	}
	return nil
}

// check fails if a file is not in its place.
func (p *place) check() error {
	for _, f := range p.files {
		if now, err := os.Stat(f.path); err != nil || !os.SameFile(now, f.file) {
			return &dialect.Error{Op: "find", Engine: "sqlite", Err: fmt.Errorf("%w: %w", dialect.ErrMoved, f.missing(err))}
		}
	}
	return nil
}

// missing says what happened to a file, and what to do. err is why it was not found, nil if another file was.
func (f placed) missing(err error) error {
	const back = "put the former file back; or save what the server still reads (kubectl get -o yaml), stop it, put what is to be served in place (sqube restore) and start it again"
	switch {
	case err == nil:
		return fmt.Errorf("%s (%s) now leads to another file than the one that is open: %s", f.path, f.needed, back)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s (%s) is gone: it, or a folder above it, was deleted, moved or unmounted: %s", f.path, f.needed, back)
	}
	return fmt.Errorf("%w (%s): make it accessible again", err, f.needed)
}

// connector opens connections to a database whose files are in place: others would find other files.
type connector struct {
	driver driver.Driver
	place  *place
	name   string
}

// connect is sql.Open for connections of the engine.
func (e *Engine) connect(name string) *sql.DB {
	return sql.OpenDB(connector{&sqlite.Driver{}, &e.place, name})
}

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return c.driver }

// Connect implements driver.Connector.
func (c connector) Connect(context.Context) (driver.Conn, error) {
	if err := c.place.check(); err != nil {
		return nil, err
	}
	conn, err := c.driver.Open(c.name)
	if err != nil {
		return nil, err
	}
	if err := c.place.check(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// HasFiles implements dialect.Engine.
func (e *Engine) HasFiles() bool { return e.memory == "" }

// InPlace implements dialect.Engine.
func (e *Engine) InPlace(ctx context.Context) error {
	err := e.place.check()
	left := e.place.left.Swap(err != nil)
	switch {
	case err != nil && !left:
		e.saveCommits(ctx)
	case err == nil && left:
		_ = e.markOpen(ctx) // after saveCommits
	}
	return err
}

// saveCommits completes the file if its write-ahead log has lost its name, so that a crash does not lose what is in there. It
// uses a connection that has had the log open all the time. If it fails, the log is still open, and closing the database tries
// again.
func (e *Engine) saveCommits(ctx context.Context) {
	log := e.place.files[1]
	if now, err := os.Stat(log.path); err == nil && os.SameFile(now, log.file) {
		return
	}
	if setNumber(ctx, e.keepOpen, e.number) == nil {
		_, _ = e.keepOpen.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	}
}
