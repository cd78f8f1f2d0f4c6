package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Backup writes the state of the file at path, as of one moment, to the file to, which must not exist, and checks it.
// The file at path may be served meanwhile. On failure nothing is left.
func Backup(ctx context.Context, path, to string) (err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return err
	}
	if err := notAlone(path); err != nil {
		return err
	}
	// VACUUM INTO takes an empty file, which is for its owner only from the beginning.
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(to))
		}
	}()
	if err := errors.Join(vacuumInto(ctx, path, to), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("copying %s: %w", path, err)
	}
	if err := Verify(ctx, to); err != nil {
		return fmt.Errorf("checking the copy of %s: %w", path, err)
	}
	return syncFolder(filepath.Dir(to))
}

func vacuumInto(ctx context.Context, path, to string) error {
	db, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", to)
	return errors.Join(err, db.Close())
}

// Verify has SQLite check that the file at path is whole. An error tells what is not.
func Verify(ctx context.Context, path string) error {
	path, err := filepath.Abs(path)
	if err == nil {
		err = notAlone(path)
	}
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite", dsn(path, "query_only(1)"))
	if err != nil {
		return err
	}
	defer db.Close()
	if err := checkHeader(ctx, db); err != nil {
		return err
	}
	rows, err := db.QueryContext(ctx, "PRAGMA integrity_check")
	if err != nil {
		return err
	}
	defer rows.Close()
	var errs []error
	for rows.Next() {
		var found string
		if err := rows.Scan(&found); err != nil {
			return err
		}
		if found != "ok" {
			errs = append(errs, errors.New(found))
		}
	}
	return errors.Join(append(errs, rows.Err())...)
}

// Mend runs a statement that changes the log by hand.
func (e *Engine) Mend(ctx context.Context, statement string, args ...any) error {
	return e.transact(ctx, "mend", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statement, args...)
		return err
	})
}

// PutAside renames the file at path, with what belongs to it, and returns its new name, or "" where there is none. It
// returns dialect.ErrLocked when the file is served.
func PutAside(path string, now time.Time) (aside string, err error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	lock, err := acquire(path + ".lock")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	aside = path + ".before-restore-" + now.UTC().Format("20060102T150405.000Z")
	// The write-ahead log first: without it the file would be an older state, and with it alone there is none.
	for _, suffix := range []string{"-wal", "-shm", ""} {
		if err := os.Rename(path+suffix, aside+suffix); err != nil && (suffix == "" || !errors.Is(err, os.ErrNotExist)) {
			return "", err
		}
	}
	return aside, syncFolder(filepath.Dir(path))
}

// syncFolder makes names in a folder durable.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
