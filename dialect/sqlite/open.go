// Package sqlite keeps the log in one SQLite file, in WAL mode with every commit synced to disk.
//
// The process that opens the file is its only writer: a lock on the file keeps other processes out, whatever path they use, while
// any SQL tool may read. Writes use one connection; reads use a few others, each with its own snapshot.
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/migrations"
	"github.com/sqube/sqube/server/wholefile"
)

// Engine is a dialect.Engine on one SQLite file.
type Engine struct {
	moving   sync.Mutex // held while versions are moved into history, or purged from it
	erasing  sync.Mutex // held while pages are erased, or moved
	path     string     // without symbolic links
	memory   string     // the name of a database in memory
	lock     *os.File   // see lockDatabase; nil if the file is only read
	readMode *readMode  // nil unless the file is only read
	writer   *sql.DB
	readers  *sql.DB
	// keepOpen keeps an in-memory database, or the write-ahead log and its index, when the other connections come and go.
	keepOpen *sql.DB

	prepared  sync.Map // statement text → *sql.Stmt on readers
	nPrepared atomic.Int64

	write   writeStatements
	reserve reserve
	place   place
	skipped dialect.Skips
	number  int32 // fileNumber, once the file is marked as open
	mark    marker
	noSync  bool
	crashed bool // the file was not closed
	foreign bool // another file was opened as this one: it is a copy
	held    bool // see Held
	// triedWAL is the size of the write-ahead log at the last attempt to empty it.
	triedWAL int64
}

var _ dialect.Engine = (*Engine)(nil)

const maxPrepared = 200

// newPageSize is the page size of a new file: the smallest that SQLite allows. A commit writes each page that it touches to the
// write-ahead log, mostly for a few bytes in it. Pages of 4 KiB would save a fifth of SQLite's CPU time, which is a twentieth of
// a request's, but write twice as much.
const newPageSize = 512

// Open opens the file at path, creating it and its folder if they do not exist, and migrates its schema. It returns
// dialect.ErrLocked if another process serves the file, and migrations.ErrNewer if its schema is newer.
func Open(ctx context.Context, path string) (*Engine, error) {
	return OpenWith(ctx, path, Options{})
}

// Options are the settings of OpenWith.
type Options struct {
	// NoSync leaves writing the file to disk to the kernel. Commits survive the end of the process, but if the machine crashes
	// the file may be corrupt. There is no mark, and a copy is as good as what it was copied from.
	NoSync bool
	// Many is for one of many databases of this process, which opens and closes them often. It holds no space for a full disk, has small
	// caches, and does not look for damage in a file that sqube has closed.
	Many bool
}

// OpenWith is Open with options.
func OpenWith(ctx context.Context, path string, o Options) (*Engine, error) {
	e, _, err := open(ctx, path, o)
	if err != nil {
		return nil, err
	}
	if err := e.noteStart(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the database %s: %w", path, withHint(err)), e.Close())
	}
	e.reserve.restore() // if there is no room, writes fail, and try again
	return e, nil
}

// Migrate migrates the schema of the file at path, like Open, and returns its previous status.
func Migrate(ctx context.Context, path string) (before migrations.Status, err error) {
	e, before, err := open(ctx, path, Options{})
	if err != nil {
		return before, err
	}
	if e.crashed {
		e.number = 0 // the next server has to know
	}
	return before, e.Close()
}

func open(ctx context.Context, path string, o Options) (*Engine, migrations.Status, error) {
	e := &Engine{}
	before, err := e.open(ctx, path, o)
	if lacksSpace(err) && e.reserve.releaseAll() == nil {
		_ = e.Close()
		e = &Engine{}
		before, err = e.open(ctx, path, o)
	}
	if err != nil {
		_ = e.Close() // err is the cause
		return nil, before, fmt.Errorf("opening the database %s: %w", path, withHint(err))
	}
	return e, before, nil
}

func (e *Engine) open(ctx context.Context, path string, o Options) (before migrations.Status, err error) {
	given, err := absolute(path)
	if err != nil {
		return before, err
	}
	if path, err = resolve(given); err != nil {
		return before, err
	}
	if err := wholefile.MakeFolder(filepath.Dir(path), folderMode); err != nil {
		return before, err
	}
	if path, err = resolve(path); err != nil { // now that the folder exists
		return before, err
	}
	e.path = path
	if e.lock, err = lockDatabase(path); err != nil {
		return before, err
	}
	if e.noSync = o.NoSync; !o.Many {
		e.reserve.path = path + reserveSuffix
	}
	if err := protect(path); err != nil { // SQLite gives new files the mode of the database
		return before, err
	}
	synchronous := "synchronous(full)"
	if o.NoSync {
		synchronous = "synchronous(off)"
	}
	h, closed, err := checkLog(path)
	if err != nil {
		return before, err
	}
	if !closed || !o.Many {
		if err := inspect(ctx, path); err != nil {
			return before, err
		}
		if h, err = readHeader(path); err != nil { // SQLite may have rolled its creation back
			return before, err
		}
	}
	if h.pageSize == 0 {
		if h.pageSize, err = format(ctx, path, synchronous); err != nil {
			return before, err
		}
	}
	e.writer = e.connect(dsn(path, "journal_mode(wal)", synchronous, o.cache(8000),
		fmt.Sprintf("wal_autocheckpoint(%d)", walCheckpoint/h.pageSize), fmt.Sprintf("journal_size_limit(%d)", reserveBytes)) + existing)
	e.writer.SetMaxOpenConns(1)
	if err := e.checkpointLeftover(ctx); err != nil {
		return before, err
	}
	if before, err = migrations.Check(ctx, e.writer, migrations.SQLite); err != nil {
		return before, err
	}
	if before.Older() && !before.Interrupted { // then there is one already
		e.keepCopy(ctx, before.Current)
	}
	if err := e.migrate(ctx, before); err != nil {
		return before, err
	}
	if err := e.keep(ctx, synchronous); err != nil {
		return before, err
	}
	if err := e.markOpen(ctx); err != nil && !lacksSpace(err) {
		return before, err
	}
	if err := e.place.remember(given, path); err != nil {
		return before, err
	}
	e.openReaders(o, existing)
	return before, nil
}

// cache is the pragma for the page cache of a connection, in KiB.
func (o Options) cache(size int) string {
	if o.Many {
		size /= 16
	}
	return fmt.Sprintf("cache_size(-%d)", size)
}

// keep opens the connection that keeps the write-ahead log: the driver replaces others after a timeout, and SQLite removes the log with
// the last one.
func (e *Engine) keep(ctx context.Context, synchronous string) error {
	e.keepOpen = e.connect(dsn(e.path, synchronous, "cache_size(-64)") + existing)
	e.keepOpen.SetMaxOpenConns(1)
	_, err := e.keepOpen.ExecContext(ctx, "PRAGMA user_version") // the first read opens the log
	return err
}

// format sets what can't be changed later in the file at path, which is empty, and returns its page size.
func format(ctx context.Context, path, synchronous string) (pageSize int, err error) {
	db, err := sql.Open("sqlite", dsn(path, fmt.Sprintf("page_size(%d)", newPageSize), synchronous)+existing)
	if err != nil {
		return 0, err
	}
	_, err = db.ExecContext(ctx, "PRAGMA auto_vacuum(2)") // writes the first page
	return newPageSize, errors.Join(err, db.Close())
}

// migrate migrates the schema, which is as before, and prepares the writing statements.
func (e *Engine) migrate(ctx context.Context, before migrations.Status) error {
	if !before.UpToDate() {
		if _, err := migrations.Up(ctx, e.writer, migrations.SQLite); err != nil {
			return err
		}
	}
	return e.write.prepare(ctx, e.writer)
}

// existing makes the driver open an existing file for writing, and never create one.
const existing = "&mode=rw&_txlock=immediate"

// openReaders opens the connections for reads, with further parameters for the driver.
func (e *Engine) openReaders(o Options, parameters string) {
	e.readers = e.connect(dsn(e.path, "query_only(1)", o.cache(4000)) + parameters)
	n := max(4, 2*runtime.GOMAXPROCS(0))
	if o.Many {
		n = 2
	}
	e.readers.SetMaxOpenConns(n)
	e.readers.SetMaxIdleConns(n)
}

// checkHeader fails if the file is not a database or can't be read, before anything is written to it.
func checkHeader(ctx context.Context, db *sql.DB) error {
	var n int
	err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master").Scan(&n)
	if err != nil && strings.Contains(err.Error(), "not a database") {
		return errors.New("this file is not an SQLite database: move it away or give another path")
	}
	return err
}

// dsn returns the driver's name for the file at path. Each connection runs the pragmas.
func dsn(path string, pragmas ...string) string {
	q := url.Values{"_pragma": append(pragmas, waitUpTo(busyTimeout))}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}

// Name implements dialect.Engine.
func (e *Engine) Name() string { return "sqlite" }

// Contains implements dialect.Engine.
func (e *Engine) Contains(column, parameter string) string {
	return "instr(" + column + ", " + parameter + ") > 0"
}

// Notifications implements dialect.Engine: this process is the only writer.
func (e *Engine) Notifications() <-chan int64 { return nil }

// Close implements dialect.Engine.
func (e *Engine) Close() error {
	var errs []error
	if last := cmp.Or(e.keepOpen, e.writer); last != nil && e.path != "" {
		errs = append(errs, e.markClosed(context.Background(), last))
	}
	// A connection closes its prepared statements. The last one to close checkpoints the WAL.
	for _, db := range []*sql.DB{e.readers, e.writer, e.keepOpen} {
		if db != nil {
			errs = append(errs, db.Close())
		}
	}
	if e.lock != nil { // last: see lockDatabase
		errs = append(errs, e.lock.Close())
	}
	return errors.Join(errs...)
}
