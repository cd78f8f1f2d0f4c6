package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqube/sqube/dialect"
)

// withHint adds advice to an error from opening a file.
func withHint(err error) error {
	if hint := hintFor(err); hint != "" {
		return fmt.Errorf("%w: %s", err, hint)
	}
	return err
}

func hintFor(err error) string {
	const (
		writable = "make the folder, and what is in it, writable for the user that runs sqube"
		mounted  = "mount its file system for writing, or put the database elsewhere"
		locks    = "its file system has no locks (NFS without a lock daemon?): put the database on a local disk"
		room     = "make room on its disk"
		failing  = "see whether its disk is full (df) or fails (dmesg)"
		damaged  = "restore a backup (sqube restore --force), or have sqlite3 recover what it can (.recover)"
	)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return writable
	case errors.Is(err, syscall.EROFS):
		return mounted
	case errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.ENOSYS), errors.Is(err, errors.ErrUnsupported):
		return locks
	case isFull(err):
		return room
	case errors.Is(err, dialect.ErrCorrupt):
		return damaged
	}
	switch codeOf(err) {
	case sqlite3.SQLITE_IOERR_LOCK, sqlite3.SQLITE_IOERR_SHMLOCK:
		return locks
	}
	switch codeOf(err) & 0xff {
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM:
		return writable
	case sqlite3.SQLITE_FULL:
		return room
	case sqlite3.SQLITE_IOERR:
		return failing
	case sqlite3.SQLITE_CORRUPT:
		return damaged
	}
	return ""
}

// isFull reports whether err is the file system's that it has no space left.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// withReadHint adds advice to an error from reading a file.
func withReadHint(err error) error {
	switch codeOf(err) & 0xff {
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY:
		return fmt.Errorf("%w: its write-ahead log can be read only where files can be made beside it: copy the file, and its -wal, to such a folder", err)
	}
	return withHint(err)
}
