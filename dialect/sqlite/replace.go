package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/migrations"
	"github.com/sqube/sqube/server/wholefile"
)

// unfinished is in the name of a file that is being filled.
const unfinished = ".unfinished-"

// replaced is in the name of a file that was put aside.
const replaced = ".before-restore-"

// Replace fills a new database with fill, and renames it to path once it is complete and on disk. Until then, whatever happens,
// the old database stays at path. It is then renamed, and Replace returns its new name, or "" if there was none or it had no
// rows. Without force, Replace returns dialect.ErrNotEmpty if the old database has rows. It returns dialect.ErrLocked if
// another process is serving or replacing the database. fill may read the old database, and gets its end, with revision 0 if
// that can't be read.
func Replace(ctx context.Context, path string, force bool, now time.Time, fill func(e *Engine, replaced dialect.End) error) (aside string, err error) {
	if path, err = resolve(path); err != nil {
		return "", err
	}
	if err := wholefile.MakeFolder(filepath.Dir(path), folderMode); err != nil {
		return "", fmt.Errorf("creating the database %s: %w", path, withHint(err))
	}
	_, missing := os.Lstat(path)
	old, err := lockDatabase(path)
	if err != nil {
		return "", fmt.Errorf("opening the database %s: %w", path, withHint(err))
	}
	defer func() {
		if err != nil && errors.Is(missing, fs.ErrNotExist) {
			err = errors.Join(err, os.Remove(path)) // lockDatabase created it
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
	end := endOf(ctx, path)
	like := path
	if empty { // this command has created it, or one that was killed
		like = filepath.Dir(path)
	}
	fresh, err := newDatabase(ctx, path, like, func(e *Engine) error { return fill(e, end) })
	if err != nil {
		return "", err
	}
	if !empty {
		aside = path + replaced + now.UTC().Format("20060102T150405.000Z")
	}
	if err := exchange(ctx, path, fresh, aside); err != nil {
		return "", errors.Join(fmt.Errorf("replacing %[2]s with %[1]s: %[3]w", fresh, path, err), removeDatabase(fresh))
	}
	return aside, wholefile.SyncFolder(filepath.Dir(path))
}

// IsEmpty reports whether the file at path is missing, or a database without rows. It returns an error if the file and its
// write-ahead log do not fit.
func IsEmpty(ctx context.Context, path string) (bool, error) {
	path, err := resolve(path)
	if err == nil {
		err = checkFile(path)
	}
	if err == nil {
		err = Complete(path)
	}
	if err != nil {
		return false, err
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return isEmpty(ctx, path)
}

// isEmpty reports whether the database at path has no rows.
func isEmpty(ctx context.Context, path string) (empty bool, err error) {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return err == nil, err
	}
	if err := checkWholeLog(path); err != nil { // it may have rows
		return false, err
	}
	err = reading(ctx, path, func(db *sql.DB) error {
		status, err := migrations.Read(ctx, db, migrations.SQLite)
		if err != nil || status.Current == 0 {
			// Without a log, it may contain something else.
			return errors.Join(err, db.QueryRowContext(ctx, "SELECT count(*) = 0 FROM sqlite_master").Scan(&empty))
		}
		return db.QueryRowContext(ctx, "SELECT NOT EXISTS (SELECT 1 FROM log)").Scan(&empty)
	})
	return empty, err
}

// endOf returns the end of the database at path, by what can be read of it.
func endOf(ctx context.Context, path string) (end dialect.End) {
	_ = reading(ctx, path, func(db *sql.DB) error {
		_ = db.QueryRowContext(ctx, "SELECT revision FROM counter").Scan(&end.Revision)
		return db.QueryRowContext(ctx, "SELECT written_at FROM counter").Scan(&end.WrittenAt) // older schemas have none
	})
	if m, err := readMark(path); err == nil && m != nil {
		end.Revision = max(end.Revision, m.Most)
	}
	return end
}

// newDatabase fills a new file in the folder of path with fill, and returns its name. The file gets the owner of like.
func newDatabase(ctx context.Context, path, like string, fill func(*Engine) error) (_ string, err error) {
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
	if err := errors.Join(wholefile.Chown(f, like), f.Close()); err != nil {
		return "", err
	}
	engine, _, err := open(ctx, name, Options{})
	if err != nil {
		return "", err
	}
	if err := errors.Join(fill(engine), engine.Close()); err != nil { // leaves no write-ahead log
		return "", err
	}
	if err := Verify(ctx, name); err != nil {
		return "", fmt.Errorf("checking %s: %w", name, err)
	}
	if empty, err := isEmpty(ctx, name); err != nil || empty {
		return "", errors.Join(fmt.Errorf("checking %s: it is empty", name), err)
	}
	return name, nil
}

// removeUnfinished deletes the files of processes that were killed in newDatabase. A running one has locked its file.
func removeUnfinished(path string) error {
	folder, prefix := filepath.Dir(path), "."+filepath.Base(path)+unfinished
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		number, found := strings.CutPrefix(entry.Name(), prefix)
		if !found || strings.Contains(number, "-") { // removed together with its database
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

// removeDatabase deletes the files of the database at path. If it is killed, the database is still there, so that
// removeUnfinished removes the rest.
func removeDatabase(path string) (err error) {
	for _, suffix := range slices.Backward(suffixes) {
		if failed := os.Remove(path + suffix); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// exchange renames the file fresh to path, and before that the file at path to aside, unless that is "". A complete database is
// at path at all times.
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

// removeTwin removes the second name of the file at path, which is locked, if an exchange was killed between two of its steps.
func removeTwin(path string) error {
	file, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if stat, ok := file.Sys().(*syscall.Stat_t); !ok || stat.Nlink < 2 {
		return nil
	}
	folder, name := filepath.Split(path)
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), name+replaced) && !strings.HasPrefix(entry.Name(), "."+name+unfinished) {
			continue
		}
		twin, err := entry.Info()
		if err != nil {
			return err
		}
		_, noLog := os.Lstat(folder + entry.Name() + "-wal")
		if os.SameFile(file, twin) && errors.Is(noLog, fs.ErrNotExist) {
			return os.Remove(folder + entry.Name())
		}
	}
	return nil
}

// checkpointFile moves the write-ahead log of the file at path, which is not being served, into the file, or has SQLite undo what
// its rollback journal says was interrupted. Neither may stay: SQLite would apply it to the next file at path.
func checkpointFile(ctx context.Context, path string) error {
	if left, err := logLeft(path); err != nil || !left {
		return err
	}
	if err := checkWholeLog(path); err != nil { // what SQLite would drop stays with the file
		return err
	}
	db, err := sql.Open("sqlite", dsn(path)+existing)
	if err != nil {
		return err
	}
	if err = checkHeader(ctx, db); err == nil { // the first read applies the journal
		_, err = db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	}
	var number int32
	if err == nil {
		err = db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&number)
	}
	if err == nil && number&openBit != 0 {
		err = setNumber(ctx, db, number&^openBit) // closing the file completes it
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	left, err := logLeft(path)
	if left {
		err = errors.New("another process is using it")
	}
	return err
}

// logLeft reports whether the file at path has a write-ahead log, or a rollback journal that is not void.
func logLeft(path string) (bool, error) {
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	journal, err := os.Open(path + "-journal")
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer journal.Close()
	first := make([]byte, 1) // of a magic number, or 0 in a journal that was kept after a commit
	_, err = io.ReadFull(journal, first)
	if errors.Is(err, io.EOF) {
		return false, nil
	}
	return first[0] != 0, err
}

// exchangeDamaged is exchange for a file whose write-ahead log has to move with it. The file moves first: no server starts with a
// log but no file.
func exchangeDamaged(path, fresh, aside string) error {
	for _, suffix := range suffixes {
		if err := os.Rename(path+suffix, aside+suffix); err != nil && (suffix == "" || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	if err := os.Link(fresh, path); err != nil { // unlike a rename, it replaces nothing that was created meanwhile
		return err
	}
	if err := os.Remove(fresh); !errors.Is(err, fs.ErrNotExist) { // a server may have removed it: see removeTwin
		return err
	}
	return nil
}
