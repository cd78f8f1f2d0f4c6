package datastore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/server/wholefile"
)

// A server that has served a cluster must not begin an empty one because its database is gone, or because another is named by
// mistake. So once there is something in the database, its name is written beside the keys. Keys alone mean nothing: they may
// have come from another cluster before the first start.

// formerFile is the file under a data directory with the name of the database that its server has served.
func formerFile(dataDir string) string { return filepath.Join(dataDir, "pki", "database") }

// Remember records that the server of dataDir serves the database, which is not empty. One that does not survive the machine is
// not recorded.
func (d Datastore) Remember(dataDir string) error {
	if d.Memory || d.NoSync {
		return nil
	}
	if d.DSN == "" {
		if path, err := filepath.Abs(d.Path); err == nil {
			d.Path = path
		}
	}
	text := d.String() + "\n"
	if known, err := os.ReadFile(formerFile(dataDir)); err == nil && string(known) == text {
		return nil
	}
	return wholefile.Replace(formerFile(dataDir), 0o600, func(f *os.File) error {
		_, err := f.WriteString(text)
		return err
	})
}

// former returns the name of the database that the server of dataDir has served, "" if there was none.
func former(dataDir string) string {
	text, err := os.ReadFile(formerFile(dataDir))
	if err != nil {
		return "" // the server reports what is wrong with the folder
	}
	return terminal.Printable(strings.TrimSpace(string(text)))
}

// OpenFor is Open for the server of dataDir. It returns an error if that has served a database, and this one is missing or empty.
func (d Datastore) OpenFor(ctx context.Context, dataDir string) (Engine, error) {
	before := former(dataDir)
	if d.Memory || before == "" {
		return d.Open(ctx)
	}
	if d.DSN == "" {
		// Opening it would create it, and reports what else may be wrong.
		if empty, err := sqlite.IsEmpty(ctx, d.Path); err == nil && empty {
			return nil, d.lost(dataDir, before)
		}
		return d.Open(ctx)
	}
	engine, err := d.Open(ctx)
	if err != nil {
		return nil, err
	}
	err = dialect.CheckEmpty(ctx, engine)
	if errors.Is(err, dialect.ErrNotEmpty) {
		return engine, nil
	}
	if err == nil {
		err = d.lost(dataDir, before)
	}
	return nil, errors.Join(terminal.OneLine(err), engine.Close())
}

func (d Datastore) lost(dataDir, before string) error {
	return fmt.Errorf("%s is missing or empty, but the server of %s has served %s: put the database back (an SQLite file with its -wal), or restore a backup (sqube restore), or name the right one (--datastore); to begin a new cluster, remove %s, or all of pki for new keys too",
		d, dataDir, before, formerFile(dataDir))
}
