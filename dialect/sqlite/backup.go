package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
	err = reading(ctx, path, func(db *sql.DB) error {
		if before, err = migrations.Read(ctx, db, migrations.SQLite); err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, "VACUUM INTO ?", name)
		return err
	})
	if err = errors.Join(err, to.Sync()); err != nil {
		return fmt.Errorf("copying %s: %w", path, err)
	}
	if err := verifyCopy(ctx, name, to, before); err != nil {
		return fmt.Errorf("checking the copy of %s: %w", path, err)
	}
	return nil
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
