package datastore

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/server/fleet"
	"github.com/sqube/sqube/sqlstore"
)

// Files are the databases of clusters in SQLite files: each in a folder of its own. It implements fleet.Databases.
type Files struct{ folder string }

// NewFiles returns the databases in a folder, which need not exist.
func NewFiles(folder string) *Files { return &Files{folder} }

func (f *Files) path(id string) string { return filepath.Join(f.folder, id, "sqube.db") }

// Create implements fleet.Databases.
func (f *Files) Create(_ context.Context, id string) error {
	return os.MkdirAll(filepath.Dir(f.path(id)), 0o700)
}

// Fork implements fleet.Databases.
func (f *Files) Fork(context.Context, string, string, fleet.Moment) (int64, error) {
	return 0, errors.New("forks are not built yet")
}

// Restore implements fleet.Databases.
func (f *Files) Restore(context.Context, string, string, fleet.Moment) (int64, error) {
	return 0, errors.New("restores are not built yet")
}

// Open implements fleet.Databases.
func (f *Files) Open(ctx context.Context, id string, o sqlstore.Options) (*sqlstore.Store, error) {
	engine, err := sqlite.OpenWith(ctx, f.path(id), sqlite.Options{})
	if err != nil {
		return nil, err
	}
	return sqlstore.Open(ctx, engine, o)
}

// Remove implements fleet.Databases.
func (f *Files) Remove(_ context.Context, id string) error {
	return os.RemoveAll(filepath.Dir(f.path(id)))
}

// IDs implements fleet.Databases.
func (f *Files) IDs(context.Context) (ids []string, err error) {
	entries, err := os.ReadDir(f.folder)
	for _, e := range entries {
		ids = append(ids, e.Name())
	}
	return ids, err
}

// Bytes implements fleet.Databases.
func (f *Files) Bytes(_ context.Context, id string) (int64, error) {
	info, err := os.Stat(f.path(id))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
