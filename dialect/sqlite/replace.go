package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/migrations"
)

// unfinished is in the name of a file that is being filled to become a database.
const unfinished = ".unfinished-"

// Replace has fill fill a new database, and gives it the name path when it is whole and on the disk. Until then there is
// at path what was there before, whatever happens. What was there gets another name, which Replace returns; "" where there
// was nothing, or a database without rows. Without force a database with rows stays, and the error is dialect.ErrNotEmpty.
// It is dialect.ErrLocked where another process serves or replaces the database. fill may read the one at path.
func Replace(ctx context.Context, path string, force bool, now time.Time, fill func(*Engine) error) (aside string, err error) {
	if path, err = resolve(path); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), folderMode); err != nil {
		return "", fmt.Errorf("making the database %s: %w", path, withHint(err))
	}
	_, missing := os.Lstat(path)
	old, err := lockDatabase(path)
	if err != nil {
		return "", fmt.Errorf("opening the database %s: %w", path, withHint(err))
	}
	defer func() {
		if err != nil && errors.Is(missing, fs.ErrNotExist) {
			err = errors.Join(err, os.Remove(path)) // lockDatabase made it
		}
		err = errors.Join(err, old.Close())
	}()
	empty, err := isEmpty(ctx, path)
	if !force && err != nil {
		return "", fmt.Errorf("reading the database %s: %w", path, err)
	}
	if !force && !empty {
		return "", dialect.ErrNotEmpty
	}
	fresh, err := newDatabase(ctx, path, fill)
	if err != nil {
		return "", err
	}
	if err := chownLike(fresh, old); err != nil {
		return "", errors.Join(err, removeDatabase(fresh))
	}
	if !empty {
		aside = path + ".before-restore-" + now.UTC().Format("20060102T150405.000Z")
	}
	if err := exchange(ctx, path, fresh, aside); err != nil {
		return "", errors.Join(fmt.Errorf("putting %s in the place of %s: %w", fresh, path, err), removeDatabase(fresh))
	}
	return aside, syncFolder(filepath.Dir(path))
}

// isEmpty says whether there are no rows in the database at path.
func isEmpty(ctx context.Context, path string) (empty bool, err error) {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return err == nil, err
	}
	err = reading(ctx, path, func(db *sql.DB) error {
		status, err := migrations.Read(ctx, db, migrations.SQLite)
		if err != nil || status.Current == 0 {
			// What holds no log may hold something else.
			return errors.Join(err, db.QueryRowContext(ctx, "SELECT count(*) = 0 FROM sqlite_master").Scan(&empty))
		}
		return db.QueryRowContext(ctx, "SELECT NOT EXISTS (SELECT 1 FROM log)").Scan(&empty)
	})
	return empty, err
}

// newDatabase returns the name of a new file in the folder of path that fill has filled.
func newDatabase(ctx context.Context, path string, fill func(*Engine) error) (_ string, err error) {
	if err := removeUnfinished(path); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+unfinished+"*") // of mode 0600
	if err != nil {
		return "", err
	}
	name := f.Name()
	defer func() {
		if err != nil {
			err = errors.Join(err, removeDatabase(name))
		}
	}()
	if err := f.Close(); err != nil {
		return "", err
	}
	engine, err := Open(ctx, name)
	if err != nil {
		return "", err
	}
	if err := errors.Join(fill(engine), engine.Close()); err != nil { // which leaves no write-ahead log
		return "", err
	}
	if err := Verify(ctx, name); err != nil {
		return "", fmt.Errorf("checking %s: %w", name, err)
	}
	if empty, err := isEmpty(ctx, name); err != nil || empty {
		return "", errors.Join(fmt.Errorf("checking %s: nothing is in it", name), err)
	}
	return name, nil
}

// chownLike gives the file at path to the owner of another, whose server has to open it. Only root can.
func chownLike(path string, other *os.File) error {
	info, err := other.Stat()
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return os.Chown(path, int(stat.Uid), int(stat.Gid))
	}
	return nil
}

// removeUnfinished deletes what processes left that were killed in newDatabase. One that is at work holds its file.
func removeUnfinished(path string) error {
	folder, prefix := filepath.Dir(path), "."+filepath.Base(path)+unfinished
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		number, found := strings.CutPrefix(entry.Name(), prefix)
		if !found || strings.Contains(number, "-") { // what belongs to one goes with it
			continue
		}
		name := filepath.Join(folder, entry.Name())
		left, err := lockDatabase(name)
		if errors.Is(err, dialect.ErrLocked) {
			continue
		}
		if err == nil {
			err = errors.Join(removeDatabase(name), left.Close())
		}
		if err != nil {
			return fmt.Errorf("removing %s: %w", name, err)
		}
	}
	return nil
}

// removeDatabase deletes the file at path with what belongs to it.
func removeDatabase(path string) (err error) {
	for _, suffix := range suffixes {
		if failed := os.Remove(path + suffix); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// exchange gives the file fresh the name path, and that which has it the name aside unless that is "". At every moment
// there is at path one database or the other, with all that is in it.
func exchange(ctx context.Context, path, fresh, aside string) error {
	if err := checkpointFile(ctx, path); err != nil {
		if aside == "" {
			return err
		}
		return exchangeDamaged(path, fresh, aside)
	}
	if aside != "" {
		if err := os.Link(path, aside); err != nil {
			return err
		}
	}
	err := os.Rename(fresh, path)
	if err != nil && aside != "" {
		err = errors.Join(err, os.Remove(aside))
	}
	return err
}

// checkpointFile moves what is in the write-ahead log of the file at path, which nobody serves, into the file.
func checkpointFile(ctx context.Context, path string) error {
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := sql.Open("sqlite", dsn(path)+existing)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(errors.New("another process reads it"), err)
	}
	return nil
}

// exchangeDamaged is exchange for a file whose write-ahead log has to go with it. The file goes first: no server starts on
// a log alone.
func exchangeDamaged(path, fresh, aside string) error {
	for _, suffix := range suffixes {
		if err := os.Rename(path+suffix, aside+suffix); err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	if err := os.Link(fresh, path); err != nil { // unlike a rename, it replaces nothing that was made meanwhile
		return err
	}
	return os.Remove(fresh)
}
