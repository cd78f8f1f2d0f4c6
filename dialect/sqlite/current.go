package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// Current returns the path of a file with the schema of this binary: path, or if it has an older one, an upgraded copy in a temporary folder,
// which remove removes. The file at path is not changed. Of a schema that can't be read, it returns path: reading it returns the error.
func Current(ctx context.Context, path string) (current string, remove func() error, err error) {
	keep := func() error { return nil }
	if status, err := Status(ctx, path); err != nil || !status.Older() {
		return path, keep, nil
	}
	dir, err := os.MkdirTemp("", "sqube-upgraded-") // private
	if err != nil {
		return path, keep, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	current = filepath.Join(dir, "sqube.db")
	if err := copyAndMigrate(ctx, path, current); err != nil {
		return path, keep, errors.Join(err, remove())
	}
	return current, remove, nil
}

func copyAndMigrate(ctx context.Context, from, to string) error {
	file, err := os.OpenFile(to, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(Backup(ctx, from, file), file.Close()); err != nil {
		return err
	}
	_, err = Migrate(ctx, to)
	return err
}
