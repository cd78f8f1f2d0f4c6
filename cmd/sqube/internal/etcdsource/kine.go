package etcdsource

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqube/sqube/cmd/sqube/internal/datastore"
)

// kine is a transaction that reads kine's table, which is a log: each row is a change of a key, and its id is the revision.
type kine struct {
	db       *sql.DB
	tx       *sql.Tx
	revision int64
	// unchanged returns an error if the reads may be corrupt.
	unchanged func() error
}

// OpenKineSQLite opens the SQLite file of kine, such as k3s' state.db, even while it is in use.
func OpenKineSQLite(ctx context.Context, path string) (Source, error) {
	name, unchanged, err := datastore.ReadOnly(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	k, err := openKine(ctx, "sqlite", name, nil, unchanged)
	var failure *sqlite.Error
	if errors.As(err, &failure) && slices.Contains([]int{sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}, failure.Code()&0xff) {
		err = fmt.Errorf("%w: SQLite must write to the folder of the file: copy it, and its -wal if there is one, to a folder that you may write to", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return k, nil
}

// OpenKinePostgres opens the database that kine uses, given a DSN in libpq's syntax.
func OpenKinePostgres(ctx context.Context, dsn string) (Source, error) {
	if _, err := pgx.ParseConfig(dsn); err != nil { // its text may contain a password
		return nil, errors.New("the DSN is not valid: want postgres://user:password@host:port/database?sslmode=…")
	}
	return openKine(ctx, "pgx", dsn, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, func() error { return nil })
}

func openKine(ctx context.Context, driver, dsn string, o *sql.TxOptions, unchanged func() error) (_ Source, err error) {
	k := &kine{unchanged: unchanged}
	if k.db, err = sql.Open(driver, dsn); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = k.Close() // err says why opening failed
		}
	}()
	if k.tx, err = k.db.BeginTx(ctx, o); err != nil {
		return nil, err
	}
	if err := k.tx.QueryRowContext(ctx, "SELECT coalesce(max(id), 0) FROM kine").Scan(&k.revision); err != nil {
		return nil, fmt.Errorf("reading the table kine: %w", err)
	}
	return k, nil
}

func (k *kine) Revision() int64 { return k.revision }

// Walk implements Source. A lease in kine is a time to live in seconds, which restarts with kine.
func (k *kine) Walk(ctx context.Context, prefix string, yield func(*Entry) error) error {
	rows, err := k.tx.QueryContext(ctx, `SELECT name, value, id, coalesce(lease, 0) FROM kine
WHERE id IN (SELECT max(id) FROM kine WHERE substr(name, 1, $1) = $2 GROUP BY name) AND deleted = 0`, len([]rune(prefix)), prefix)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var e Entry
		var seconds int64
		if err := rows.Scan(&e.Key, &e.Value, &e.Revision, &seconds); err != nil {
			return err
		}
		e.TTL = time.Duration(seconds) * time.Second
		if err := yield(&e); err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), k.unchanged())
}

func (k *kine) Close() error {
	var err error
	if k.tx != nil {
		err = k.tx.Rollback()
	}
	return errors.Join(err, k.db.Close())
}
