package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sqube/sqube/dialect"
)

// SQLite appends to the write-ahead log while any reader uses it, and restarts at its beginning when none does. If reads always
// overlap, that never happens, so it is forced: writers wait for the current reads to end, while new reads need only the database
// file.
const (
	// walCheckpoint is the size from which a commit writes the log to the database file, if there are no readers: a page that
	// many commits have changed is written there once.
	walCheckpoint = 4 << 20
	// walStep is how much the log may grow before the next attempt to empty it.
	walStep = 16 << 20
	// walKept is how much of it may remain after a compaction.
	walKept = 1 << 20
	// busyTimeout is how long a statement waits for a lock.
	busyTimeout = 5 * time.Second
	// walHeld is the size from which another process must be holding it.
	walHeld = 256 << 20
)

// emptyGrownWAL empties the write-ahead log if it has grown large, or sets aside the space for that. It blocks writers for at most
// about a millisecond per megabyte of the log: the larger the log, the more it is worth. If it fails, it is retried later.
func (e *Engine) emptyGrownWAL(ctx context.Context) {
	size, err := e.walSize()
	if err == nil && size >= e.triedWAL+walStep {
		e.truncateWAL(ctx, waitFor(size))
		size, err = e.walSize()
		e.triedWAL = size
	}
	if err == nil {
		e.triedWAL = min(e.triedWAL, size) // SQLite may have started over at its beginning
	}
	// Before the file will have to grow by more than the reserve has room for.
	if err == nil && size >= spareBytes && !e.extend(ctx, 2*spareBytes) {
		_ = e.reserve.release() // the next commit uses it too
	}
}

// emptyIdleWAL empties the write-ahead log if it is larger than necessary.
func (e *Engine) emptyIdleWAL(ctx context.Context) {
	if size, err := e.walSize(); err == nil && size > walKept {
		e.truncateWAL(ctx, waitFor(size))
	}
}

// waitFor is how long emptying a write-ahead log of size bytes may wait for readers.
func waitFor(size int64) time.Duration {
	return min(time.Duration(size>>20)*time.Millisecond, busyTimeout)
}

// checkpointLeftover moves what a killed process left in the write-ahead log into the file. It may have been killed because a
// sync failed. The kernel then treats unwritten pages as written, so another sync of the log proves nothing: only data written
// again is known to be on disk. Commits that followed damage in the log would be lost.
func (e *Engine) checkpointLeftover(ctx context.Context) error {
	if size, err := e.walSize(); err != nil || size == 0 {
		return err
	}
	var kept bool // because another process reads
	var pages, moved int
	if err := e.writer.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&kept, &pages, &moved); err != nil || !kept {
		return err
	}
	return e.rewriteWAL(ctx)
}

// rewriteWAL writes the write-ahead log to disk again, unchanged.
func (e *Engine) rewriteWAL(ctx context.Context) (err error) {
	tx, err := e.writer.BeginTx(ctx, nil) // so that no other process writes to it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback()) }()
	log, err := os.OpenFile(e.path+"-wal", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if _, err := io.Copy(io.NewOffsetWriter(log, 0), log); err != nil {
		return err
	}
	return log.Sync()
}

// truncateWAL tries to empty the write-ahead log, and waits up to wait for readers. It reports whether they hold it. It returns no
// error: a commit will run into the same one.
func (e *Engine) truncateWAL(ctx context.Context, wait time.Duration) (held bool) {
	held, _ = e.tryTruncateWAL(ctx, wait)
	return held
}

func (e *Engine) tryTruncateWAL(ctx context.Context, wait time.Duration) (held bool, err error) {
	conn, err := e.writer.Conn(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer func() {
		// Even if ctx has ended: otherwise commits would keep the short timeout and fail.
		_, _ = conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA "+waitUpTo(busyTimeout))
	}()
	if _, err := conn.ExecContext(ctx, "PRAGMA "+waitUpTo(wait)); err != nil {
		return false, err
	}
	var pages, moved int
	err = conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&held, &pages, &moved)
	return held && err == nil, err
}

// waitUpTo is the pragma that makes a connection's statements wait up to d for a lock.
func waitUpTo(d time.Duration) string { return fmt.Sprintf("busy_timeout(%d)", d.Milliseconds()) }

// walSize returns the size of the write-ahead log in bytes, 0 if there is none.
func (e *Engine) walSize() (int64, error) {
	if e.path == "" { // in memory
		return 0, nil
	}
	info, err := os.Stat(e.path + "-wal")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return info.Size(), nil
}

// Space implements dialect.Engine.
func (e *Engine) Space(ctx context.Context) (space dialect.Space, err error) {
	const pages = "SELECT page_count * page_size, freelist_count * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
	if err := e.Query(ctx, pages, nil, func(row dialect.Row) error { return row.Scan(&space.Database, &space.Free) }); err != nil {
		return space, err
	}
	if space.WAL, err = e.walSize(); err != nil {
		return space, failure("measure", err)
	}
	if space.WAL >= walHeld || e.reserve.released.Load() && e.reserve.held.Load() {
		space.HeldBack = []string{e.longRead()}
	}
	return space, nil
}

// longRead says what holds back the write-ahead log, and what to do about it.
func (e *Engine) longRead() string {
	found := readers(e.path)
	if found == "" {
		found = "other programs that have the database open, such as sqlite3 in a transaction (fuser " + e.path + " finds them)"
	}
	return "a long read holds back the write-ahead log " + e.path + "-wal: end " + found
}

// readers names the other processes that read the database at path, such as "process 7 (sqlite3)"; "" if it can't tell. SQLite locks
// the bytes 123 to 127 of the -shm file for reads (https://www.sqlite.org/walformat.html#wal_locks).
func readers(path string) string {
	info, err := os.Stat(path + "-shm")
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	locks, err := os.ReadFile("/proc/locks")
	if !ok || err != nil {
		return ""
	}
	var found []string
	for line := range strings.Lines(string(locks)) {
		// Such as "1: POSIX  ADVISORY  READ 7 fe:00:12345 124 124": process, inode, first and last byte.
		var process, first, last int
		fields := strings.Fields(line)
		if len(fields) != 8 || fields[1] != "POSIX" || !strings.HasSuffix(fields[5], ":"+strconv.FormatUint(stat.Ino, 10)) {
			continue
		}
		if _, err := fmt.Sscan(fields[4]+" "+fields[6]+" "+fields[7], &process, &first, &last); err != nil || first > 127 || last < 123 || process == os.Getpid() {
			continue
		}
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", process)) // it may have ended
		if text := fmt.Sprintf("process %d (%s)", process, strings.TrimSpace(string(name))); !slices.Contains(found, text) {
			found = append(found, text)
		}
	}
	slices.Sort(found)
	return strings.Join(found, ", ")
}
