package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/sqube/sqube/migrations"
)

// Backup writes a snapshot of the file at path to the empty file to, and verifies it. The file at path may be served meanwhile.
func Backup(ctx context.Context, path string, to *os.File) error {
	name, err := filepath.Abs(to.Name())
	if err != nil {
		return err
	}
	var before migrations.Status
	for try := 0; ; try++ {
		err = reading(ctx, path, func(db *sql.DB) (err error) {
			if before, err = migrations.Read(ctx, db, migrations.SQLite); err == nil {
				_, err = db.ExecContext(ctx, "VACUUM INTO ?", name)
			}
			return err
		})
		if !errors.Is(err, errWritten) || try == backupTries || to.Truncate(0) != nil {
			break
		}
	}
	if err = errors.Join(err, to.Sync()); err != nil {
		return fmt.Errorf("copying %s: %w", path, err)
	}
	if err := verifyCopy(ctx, name, to, before); err != nil {
		return fmt.Errorf("checking the copy of %s: %w", path, err)
	}
	return nil
}

// backupTries is how often a backup begins again, since a process has opened the file or closed it meanwhile.
const backupTries = 3

// keepCopy copies the database, which has an older schema, to a file beside it before the schema changes, since an older sqube can
// serve nothing else afterwards. It replaces earlier copies. On a disk without room for that and for the change, there is no copy.
func (e *Engine) keepCopy(ctx context.Context, schema uint) {
	earlier, _ := filepath.Glob(e.path + copySuffix + "*") // fails for a wrong pattern only: then earlier copies stay
	name := fmt.Sprint(e.path, copySuffix, schema)
	if err := e.copyTo(ctx, name+".new"); err != nil {
		_ = os.Remove(name + ".new")
		slog.Warn("no copy of the database is kept from before its schema changes", "error", err)
		return
	}
	for _, file := range earlier {
		_ = os.Remove(file) // it only takes space
	}
	if err := os.Rename(name+".new", name); err != nil {
		slog.Warn("the copy of the database from before its schema changes has no final name", "error", err)
		return
	}
	slog.Info("a copy of the database is kept from before its schema changes: to go back to an older sqube, stop this one and run sqube restore FILE --force with the older one; otherwise remove it in time", "file", name)
}

const copySuffix = "-schema"

// copyTo copies the database to the file name, if there is room for that twice.
func (e *Engine) copyTo(ctx context.Context, name string) (err error) {
	file, err := openFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, e.path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var size int64
	if err := e.writer.QueryRowContext(ctx, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").Scan(&size); err != nil {
		return err
	}
	if err := allocate(file, 2*size+reserveBytes); isFull(err) {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	if _, err := e.writer.ExecContext(ctx, "VACUUM INTO ?", name); err != nil {
		return err
	}
	return file.Sync()
}

// verifyCopy fails if the file at path is not to, or not an intact database with the wanted schema. Opening it is not enough:
// SQLite takes an empty file for an empty database.
func verifyCopy(ctx context.Context, path string, to *os.File, want migrations.Status) error {
	switch same, err := names(path, to); {
	case err != nil:
		return err
	case !same:
		return errors.New("another process removed or replaced it meanwhile")
	}
	if err := Verify(ctx, path); err != nil {
		return err
	}
	if got, err := Status(ctx, path); err != nil || got != want {
		return errors.Join(fmt.Errorf("it has schema %d instead of %d", got.Current, want.Current), err)
	}
	return nil
}
