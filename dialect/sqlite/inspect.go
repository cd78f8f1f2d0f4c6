package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/migrations"
)

// inspectTime limits the check of a file before it is opened. It is enough for a few hundred megabytes; damage beyond that is
// found when read.
const inspectTime = 500 * time.Millisecond

// inspect fails if the file at path can't be served. It does not change the file.
func inspect(ctx context.Context, path string) (err error) {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return err
	}
	mode := "&mode=ro" // otherwise closing it would change it
	if unfinished, err := os.Stat(path + "-journal"); err == nil && unfinished.Size() > 0 {
		mode = existing // a crash interrupted the creation of the file, and SQLite rolls that back
	}
	db, err := sql.Open("sqlite", dsn(path)+mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := checkHeader(ctx, db); err != nil {
		return err
	}
	if _, err := migrations.Check(ctx, db, migrations.SQLite); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, inspectTime)
	defer cancel()
	var found string
	err = db.QueryRowContext(bounded, "PRAGMA quick_check(1)").Scan(&found)
	switch {
	case bounded.Err() != nil:
		return ctx.Err()
	case err == nil && found != "ok":
		return fmt.Errorf("%w: %s", dialect.ErrCorrupt, found)
	}
	return err
}
