package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/sqube/sqube/dialect"
)

// A fork is a copy of the files as they are, which costs far less than a copy of the rows. While a read transaction is open, SQLite moves
// nothing from the write-ahead log to the file but what was committed before, and does not begin the log again with what is not yet there.
// So the file and the log, copied one after the other, are a state of the database, like those that a killed process leaves.

// Clone makes a copy of the database, as it is now, at path, where nothing may be. Adopt makes a database of it. Writers do not wait. If it fails,
// nothing is left.
func (e *Engine) Clone(ctx context.Context, path string) error {
	if err := e.place.check(); err != nil {
		return err
	}
	reader := e.connect(dsn(e.path, "query_only(1)") + "&mode=rw")
	defer reader.Close()
	conn, err := reader.Conn(ctx)
	if err != nil {
		return failure("fork", err)
	}
	defer conn.Close()
	return cloneTo(path, func(to *os.File) error {
		if e.lock.Name() != e.path { // only on Linux is the file open apart from SQLite, which would lose its locks: see lockDatabase
			_, err := conn.ExecContext(ctx, "VACUUM INTO ?", path)
			return failure("fork", err)
		}
		if _, err := conn.ExecContext(ctx, "BEGIN; SELECT revision FROM counter"); err != nil {
			return failure("fork", err)
		}
		return copyFiles(to, e.lock, e.path)
	})
}

// CloneFile is Engine.Clone of the file at path from, which is not open. It returns dialect.ErrLocked if a process serves it.
func CloneFile(from, path string) (err error) {
	if from, err = resolve(from); err != nil {
		return err
	}
	if _, err := os.Lstat(from); err != nil {
		return err
	}
	lock, err := lockDatabase(from)
	if err != nil {
		return fmt.Errorf("opening the database %s: %w", from, withHint(err))
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := checkComplete(from); err != nil {
		return err
	}
	return cloneTo(path, func(to *os.File) (err error) {
		file := lock
		if file.Name() != from {
			if file, err = os.Open(from); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.Close()) }()
		}
		return copyFiles(to, file, from)
	})
}

// cloneTo creates the file at path, and has fill copy a database to it.
func cloneTo(path string, fill func(to *os.File) error) error {
	to, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	if err := errors.Join(fill(to), to.Close()); err != nil {
		return fmt.Errorf("copying a database to %s: %w", path, errors.Join(withHint(err), removeDatabase(path)))
	}
	return nil
}

// copyFiles copies the database in file, which is at from, and its write-ahead log.
func copyFiles(to, file *os.File, from string) error {
	return errors.Join(clone(to, file), copyLog(from+"-wal", to.Name()+"-wal"))
}

// Adopt makes a database of a copy at path, which goes on at the revisions of the original: it is no older state of that. It calls change with
// it, and then writes it to disk.
func Adopt(ctx context.Context, path string, change func(*Engine) error) error {
	e, _, err := open(ctx, path, Options{NoSync: true, Many: true})
	if err != nil {
		return err
	}
	err = e.Exec(ctx, "UPDATE counter SET boot = ''")
	if err == nil {
		err = change(e)
	}
	if err == nil {
		err = e.erasePages(ctx) // what the copy must not have is in none of its bytes, also if the original had removed it before
	}
	// Closing it moves its write-ahead log into the file, and says there that it is closed.
	if err = errors.Join(err, e.Close()); err != nil {
		return err
	}
	return syncFile(path)
}

// copyLog copies a write-ahead log, if there is one, which may grow meanwhile, and begin again at most once.
func copyLog(from, to string) error {
	for {
		before, log, err := readLogHeader(from)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		copied, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_TRUNC, fileMode)
		if err != nil {
			return errors.Join(err, log.Close())
		}
		_, err = log.Seek(0, io.SeekStart)
		if err == nil {
			_, err = io.Copy(copied, log)
		}
		if err = errors.Join(err, copied.Close(), log.Close()); err != nil {
			return err
		}
		after, log, err := readLogHeader(from)
		if err = errors.Join(err, log.Close()); err != nil || after == before {
			return err
		}
	}
}

// copyBytes makes the empty file to what from is.
func copyBytes(to, from *os.File) error {
	_, err := io.Copy(to, io.NewSectionReader(from, 0, math.MaxInt64))
	return err
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Rewind makes the database what it was at a revision: rows that are newer are gone, and those that were live then are live. live has
// those of them that have left the log, and past what is to be in the place of the blocks that were current until a later revision.
func (e *Engine) Rewind(ctx context.Context, revision int64, live []*dialect.LogRow, past []*dialect.Block) error {
	return e.transact(ctx, "rewind", func(tx *sql.Tx) error {
		for _, statement := range []string{
			"DELETE FROM past WHERE until > ?1",
			"DELETE FROM log WHERE id > ?1",
			"UPDATE log SET replaced_by = NULL, padding = zeroblob(CASE WHEN id < 0x80 THEN 1 WHEN id < 0x8000 THEN 2 WHEN id < 0x800000 THEN 3 WHEN id < 0x80000000 THEN 4 WHEN id < 0x800000000000 THEN 6 ELSE 8 END) WHERE replaced_by > ?1",
			`UPDATE counter SET revision = ?1, compacted = min(compacted, ?1), packed = min(packed, ?1),
skipped_after = CASE WHEN skipped_until > ?1 THEN 0 ELSE skipped_after END, skipped_until = CASE WHEN skipped_until > ?1 THEN 0 ELSE skipped_until END`,
		} {
			if _, err := tx.ExecContext(ctx, statement, revision); err != nil {
				return err
			}
		}
		insert, put := tx.StmtContext(ctx, e.write.insert), tx.StmtContext(ctx, e.write.putBlock)
		for _, row := range live {
			if err := add(ctx, insert, row); err != nil {
				return err
			}
		}
		for _, b := range past {
			if _, err := put.ExecContext(ctx, b.Values()...); err != nil {
				return err
			}
		}
		return nil
	})
}
