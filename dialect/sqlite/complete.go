package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"

	"modernc.org/sqlite"

	"github.com/sqube/sqube/dialect"
)

// While a database is open, its last commits are in the write-ahead log alone. A copy of the file without the log is an older
// state, at worst an empty one, and SQLite can't tell. So the file itself says whether it was closed, in a number in its header
// that SQLite leaves to applications (PRAGMA user_version): its last bit is set while the file is open, and the others are
// fileNumber.
//
// A process that is killed leaves its log. So if there is none beside a file that was not closed, either another program has
// closed the file and so completed it, as sqlite3 does after a look, or the log was lost. If the file is a copy, by its number,
// it was lost.
const (
	openBit     = 1
	unknownFile = 2 // the least fileNumber
)

// markOpen sets the bit, in the file and not only in the write-ahead log.
func (e *Engine) markOpen(ctx context.Context) error {
	var number int32
	if err := e.writer.QueryRowContext(ctx, "PRAGMA user_version").Scan(&number); err != nil {
		return err
	}
	if e.number == 0 { // it stays the same while the file is open, and others may be reading it
		e.number = fileNumber(e.path)
	}
	e.crashed, e.foreign = number&openBit != 0, number&^openBit != 0 && number&^openBit != e.number
	if number == e.number|openBit {
		return nil // it was set before the crash
	}
	if err := setNumber(ctx, e.writer, e.number|openBit); err != nil {
		return err
	}
	var kept bool
	var pages, moved int
	return e.writer.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&kept, &pages, &moved)
}

// markClosed clears the bit on the connection that closes last, which then moves the write-ahead log into the file and removes
// the log. The log has to stay if the bit does. If the file is no longer in its place, SQLite leaves both as they are.
func (e *Engine) markClosed(ctx context.Context, last *sql.DB) error {
	if e.number != 0 {
		// Without their place, files have no mark; a log that was deleted is open for the last time.
		marked := e.closeMark(ctx)
		if (marked == nil || errors.Is(marked, dialect.ErrMoved)) && setNumber(ctx, last, e.number) == nil {
			return nil
		}
	}
	conn, err := last.Conn(ctx)
	if err != nil {
		return err
	}
	return errors.Join(conn.Raw(func(c any) error {
		_, err := c.(sqlite.FileControl).FileControlPersistWAL("main", 1)
		return err
	}), conn.Close())
}

func setNumber(ctx context.Context, db *sql.DB, number int32) error {
	_, err := db.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", number))
	return err
}

// header is what the first page of a database file says about it (https://www.sqlite.org/fileformat2.html).
type header struct {
	pageSize int   // 0 in an empty file
	keepsLog bool  // it is in WAL mode, which a backup is not
	isOpen   bool  // the file was not closed
	number   int32 // of the file, without openBit
}

// readHeader reads the header of the file at path, which SQLite must not have open in this process; see lockDatabase.
func readHeader(path string) (h header, err error) {
	f, err := os.Open(path)
	if err != nil {
		return h, err
	}
	defer f.Close()
	first := make([]byte, 64)
	if _, err := io.ReadFull(f, first); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return h, err
	}
	number, pageSize := int32(binary.BigEndian.Uint32(first[60:])), int(binary.BigEndian.Uint16(first[16:]))
	if pageSize == 1 {
		pageSize = 1 << 16
	}
	return header{pageSize, first[18] == 2, number&openBit != 0, number &^ openBit}, nil
}

// checkComplete fails if the file at path lacks its write-ahead log, or a part of it.
func checkComplete(path string) error {
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, checkWholeLog(path))
	}
	h, err := readHeader(path) // without a log, no process has it open
	if err != nil || !h.keepsLog || !h.isOpen {
		return err
	}
	_, err = os.Stat(path + "-wal")
	if again, failed := readHeader(path); err == nil || failed != nil || !again.isOpen { // a process has just opened or closed it
		return failed
	}
	if err := checkOneName(path); err != nil {
		return err
	}
	if h.number == fileNumber(path) {
		return nil
	}
	return fmt.Errorf("its last commits are missing: they were in %[1]s-wal, without which it was copied or moved. Copy that too; or restore a backup (sqube restore FILE --force); or go on without them: sqube restore %[1]s --force --datastore sqlite://%[1]s", path)
}

// Complete returns an error if the file at path lacks its write-ahead log, or a part of it, with its last commits.
func Complete(path string) error {
	resolved, err := resolve(path)
	if err == nil {
		err = checkComplete(resolved)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // reading it says what to do
		return fmt.Errorf("reading the database %s: %w", path, err)
	}
	return nil
}

// checkLog returns the header of the file at path, and whether it was closed in its place. It fails if the write-ahead log beside the file can't
// be the file's, or is damaged. SQLite must not have the file open in this process.
func checkLog(path string) (h header, closed bool, err error) {
	log, missing := os.Stat(path + "-wal")
	if h, err = readHeader(path); err != nil {
		return h, false, err
	}
	if missing != nil || log.Size() == 0 {
		if err = checkComplete(path); err == nil && missing != nil && h.keepsLog && h.isOpen {
			slog.Warn("the database was not closed by sqube, and has no write-ahead log: if another program has closed it, as sqlite3 does after a look, nothing is missing; if the log was deleted, the last commits are", "file", path)
		}
		return h, h.keepsLog && !h.isOpen && h.number == fileNumber(path), err
	}
	if !h.keepsLog {
		return h, false, fmt.Errorf("the write-ahead log %[1]s-wal beside it is another database's, and would damage this one: move it away", path)
	}
	return h, false, checkWholeLog(path)
}
