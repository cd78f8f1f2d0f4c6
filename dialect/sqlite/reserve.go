package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqube/sqube/dialect"
)

// reserveBytes is the size of the reserve: as much as the write-ahead log holds when a commit has it written to the database
// file, and the largest group. It also limits the log's file when the log starts over: on a full disk, commits would fill a
// larger one, and the reserve could not take all of that.
const reserveBytes = walCheckpoint + 4<<20

// startBytes is the part of the reserve that is left to the next start, which has to write the counter and the mark.
const startBytes = 256 << 10

const reserveSuffix = "-reserve"

// reserve is a file next to the database that takes up space for when the disk is full. Removing versions needs space before it
// frees any: the write-ahead log grows first, and the database file grows by what the log holds before the log can be emptied. So
// on a full disk the reserve gives its space to that, and to deletions. Other writes fail until there is room for the reserve
// again.
//
// While another process reads, the log can't be emptied, so nothing frees space. Then the space is for deletions only; see extend.
type reserve struct {
	path     string      // of the file; "" for a database in memory
	released atomic.Bool // whether others may use the space
	held     atomic.Bool // whether reads kept the log from being emptied when the space was last used
	// mu is held by the one that uses the space, or wants to know whether there is enough.
	mu sync.Mutex
	// resizing is held while the size of the file changes.
	resizing sync.Mutex
}

// release gives the space of the reserve back to the file system, except for what the next start needs.
func (r *reserve) release() error { return r.shrink(startBytes) }

// releaseAll gives back what release leaves, too. A start may use it.
func (r *reserve) releaseAll() error { return r.shrink(0) }

func (r *reserve) shrink(to int64) error {
	r.released.Store(true)
	err := r.resize(0, func(file *os.File) error {
		info, err := file.Stat()
		if err == nil && info.Size() > to {
			err = file.Truncate(to)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// restore takes the space again, and returns false if there is too little. A file system that can't set space aside has no
// reserve.
func (r *reserve) restore() bool {
	err := r.resize(os.O_CREATE, func(file *os.File) error { return allocate(file, reserveBytes) })
	if isFull(err) {
		_ = r.release() // it may have taken a part
		_ = r.resize(0, func(file *os.File) error { return allocate(file, startBytes) })
		return false
	}
	r.released.Store(false)
	return true
}

// isExhausted reports whether not even one page fits beside the reserve.
func (r *reserve) isExhausted() bool {
	const largestPage = 64 << 10
	return isFull(r.resize(os.O_CREATE, func(file *os.File) error {
		info, err := file.Stat()
		if err != nil {
			return err
		}
		return errors.Join(allocate(file, info.Size()+largestPage), file.Truncate(info.Size()))
	}))
}

func (r *reserve) resize(flag int, do func(*os.File) error) error {
	r.resizing.Lock()
	defer r.resizing.Unlock()
	file, err := openFile(r.path, os.O_WRONLY|flag, strings.TrimSuffix(r.path, reserveSuffix))
	if err != nil {
		return err
	}
	return errors.Join(do(file), file.Close())
}

// writeFailure is failure for writes. SQLite tells a full disk from other failed writes, but not a disk quota that is used up, so
// the file system is asked.
func (e *Engine) writeFailure(op string, err error) error {
	if codeOf(err)&0xff == sqlite3.SQLITE_IOERR && e.reserve.isExhausted() {
		return &dialect.Error{Op: op, Engine: "sqlite", Err: fmt.Errorf("%w: %w", dialect.ErrFull, err)}
	}
	return failure(op, err)
}

// lacksSpace reports whether opening a database may have failed because the disk is full: SQLite creates and extends the files
// beside it.
func lacksSpace(err error) bool {
	switch codeOf(err) {
	case sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE:
		return true
	}
	return isFull(err)
}

// errReserved is the error of writes that the reserve is not for.
var errReserved = fmt.Errorf("%w; the last %d MiB are for deletions and for removing old versions", dialect.ErrFull, reserveBytes>>20)

// commitOnFullDisk commits a group for which there is no space but that of the reserve: deletions may use it, others only what is
// left beside it.
func (e *Engine) commitOnFullDisk(ctx context.Context, group []dialect.Write, all *all) (dialect.Committed, error) {
	e.reserve.mu.Lock()
	defer e.reserve.mu.Unlock()
	if e.useReserve(ctx) && (deletesOnly(group) || e.reserve.restore()) {
		return e.commit(ctx, group, all)
	}
	return dialect.Committed{}, e.reserved("commit")
}

// reserved is the error of what the space of the reserve is not for.
func (e *Engine) reserved(op string) error {
	err := errReserved
	if e.reserve.held.Load() {
		err = fmt.Errorf("%w; %s", dialect.ErrFull, e.longRead())
	}
	return &dialect.Error{Op: op, Engine: "sqlite", Err: err}
}

// useReserve empties the write-ahead log with the help of the reserve, and leaves the space of the reserve to what comes next. It
// returns false if what comes next would take the space for emptying the log later, since it is held.
func (e *Engine) useReserve(ctx context.Context) bool {
	wait := time.Second // for reads to end
	if readers(e.path) != "" {
		wait /= 10 // for those of this process
	}
	if e.reserve.release() != nil {
		return true
	}
	held := e.truncateWAL(ctx, wait)
	e.reserve.held.Store(held)
	return !held || e.extend(ctx, 0)
}

// spareBytes is more than a group of deletions adds to the file.
const spareBytes = 1 << 20

// extend makes the file as long as emptying the write-ahead log will make it, and by spareBytes longer, if more than least bytes are
// missing. So emptying it later takes no more space, however full the disk is by then; that cuts the file to its length. extend
// returns false if there is too little space.
func (e *Engine) extend(ctx context.Context, least int64) bool {
	var length int64
	err := e.writer.QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").Scan(&length)
	if err != nil {
		return true // what comes next fails too
	}
	if info, err := e.lock.Stat(); err != nil || length+spareBytes-info.Size() <= least {
		return true
	}
	return !isFull(allocate(e.lock, length+spareBytes)) // if the file system can't set space aside, there is no reserve either
}

// reclaim runs step, which frees space. On a full disk it runs it again with the space of the reserve, unless the write-ahead log is
// held: then step would only make that longer.
func (e *Engine) reclaim(ctx context.Context, op string, step func() error) error {
	if !e.reserve.released.Load() || !e.reserve.held.Load() {
		if err := step(); !errors.Is(err, dialect.ErrFull) {
			return err
		}
	}
	e.reserve.mu.Lock()
	defer e.reserve.mu.Unlock()
	e.useReserve(ctx)
	if e.reserve.held.Load() {
		return e.reserved(op)
	}
	return step()
}

// restoreReserve restores the reserve after a use, if there is room again.
func (e *Engine) restoreReserve(ctx context.Context) {
	e.reserve.mu.Lock()
	defer e.reserve.mu.Unlock()
	if e.reserve.released.Load() && e.useReserve(ctx) {
		e.reserve.restore()
	}
}

// deletesOnly reports whether a group has nothing but deletions, and heartbeats or the record of their transaction that come before them.
func deletesOnly(group []dialect.Write) bool {
	last := len(group) - 1
	for i := range group {
		w := &group[i]
		record := w.Group == dialect.InternalGroup && i < last
		if w.Operation != dialect.Delete && !w.Heartbeat && !record {
			return false
		}
	}
	return true
}
