package migrations

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"regexp"
	"strings"

	"github.com/golang-migrate/migrate/v4/database"
	"github.com/jackc/pgx/v5/pgconn"
)

// postgresDriver runs steps on Postgres, with the table of golang-migrate's own driver. That one takes a session lock, which
// fails behind a pooler in transaction mode and on some engines; this one leaves locking to Up.
type postgresDriver struct{ db *sql.DB }

var _ database.Driver = postgresDriver{}

func newPostgresDriver(db *sql.DB) (database.Driver, error) {
	_, err := db.Exec("CREATE TABLE IF NOT EXISTS schema_migrations (version bigint NOT NULL PRIMARY KEY, dirty boolean NOT NULL)")
	return postgresDriver{db}, err
}

// Run implements database.Driver. Postgres runs statements that are sent together in one transaction.
func (d postgresDriver) Run(migration io.Reader) error {
	statements, err := io.ReadAll(migration)
	if err != nil {
		return err
	}
	_, err = d.db.Exec(string(statements))
	if answer := new(pgconn.PgError); errors.As(err, &answer) && tunes(string(statements)) {
		slog.Warn("the database rejected table settings and keeps its own", "error", err)
		return nil
	}
	return err
}

// tunes reports whether the statements only set storage parameters. Engines other than Postgres may not have these.
func tunes(statements string) bool {
	for statement := range strings.SplitSeq(comments.ReplaceAllString(statements, ""), ";") {
		if statement = strings.TrimSpace(statement); statement != "" && !parameters.MatchString(statement) {
			return false
		}
	}
	return true
}

var (
	comments   = regexp.MustCompile(`(?m)^--.*$`)
	parameters = regexp.MustCompile(`^ALTER TABLE \w+ SET \(`)
)

// SetVersion implements database.Driver.
func (d postgresDriver) SetVersion(version int, dirty bool) error {
	tx, err := d.db.Begin()
	if err != nil {
		return err
	}
	_, err = tx.Exec("DELETE FROM schema_migrations")
	if err == nil && (version >= 0 || dirty) {
		_, err = tx.Exec("INSERT INTO schema_migrations (version, dirty) VALUES ($1, $2)", version, dirty)
	}
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Version implements database.Driver.
func (d postgresDriver) Version() (version int, dirty bool, err error) {
	err = d.db.QueryRow("SELECT version, dirty FROM schema_migrations").Scan(&version, &dirty)
	if errors.Is(err, sql.ErrNoRows) {
		return database.NilVersion, false, nil
	}
	return version, dirty, err
}

// Close implements database.Driver. The caller closes the database.
func (postgresDriver) Close() error { return nil }

// Lock implements database.Driver. Up holds the lock.
func (postgresDriver) Lock() error { return nil }

// Unlock implements database.Driver.
func (postgresDriver) Unlock() error { return nil }

// Open implements database.Driver.
func (postgresDriver) Open(string) (database.Driver, error) { return nil, errors.ErrUnsupported }

// Drop implements database.Driver.
func (postgresDriver) Drop() error { return errors.ErrUnsupported }

// lockKey is the advisory lock of Up.
const lockKey int64 = 0x7371756265 // "sqube"

// lockPostgres keeps other processes out of Up until unlock is called. It locks in a transaction, which stays in one session even
// behind a pooler. An engine without advisory locks is not locked: it does no harm to run steps twice.
func lockPostgres(ctx context.Context, db *sql.DB) (unlock func(), err error) {
	// Not with ctx, whose end would release the lock during a step.
	tx, err := db.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, err
	}
	// This fails only if the connection, and with it the lock, is lost.
	unlock = func() { _ = tx.Rollback() }
	_, err = tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", lockKey)
	const unknownFeature, unknownFunction = "0A000", "42883"
	if answer := new(pgconn.PgError); errors.As(err, &answer) && (answer.Code == unknownFeature || answer.Code == unknownFunction) {
		err = nil
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

//go:embed postgres.sql
var wholePostgres string

// WholePostgres returns a script that makes the schema of the newest step in an empty schema of Postgres, with less work than the steps. It
// runs in a transaction of the caller.
func WholePostgres() (string, error) {
	newest, err := Newest(Postgres)
	return "CREATE TABLE schema_migrations (version bigint NOT NULL PRIMARY KEY, dirty boolean NOT NULL, release text);\n" + wholePostgres + recorded(newest), err
}

// recorded returns the statements that record that a step is the last one applied.
func recorded(step uint) string {
	return fmt.Sprintf("DELETE FROM schema_migrations;\nINSERT INTO schema_migrations (version, dirty, release) VALUES (%d, false, '%s')",
		step, strings.ReplaceAll(Release, "'", "''"))
}

// RemainingPostgres returns a script of the steps that a schema of Postgres with this status lacks, "" if it is up to date. It runs in a
// transaction of the caller. It returns ErrNewer if the schema is newer.
func (s Status) RemainingPostgres() (string, error) {
	newest, err := Newest(Postgres)
	s.Newest = newest
	switch {
	case err != nil:
		return "", err
	case s.Current > s.Newest:
		return "", s.newer()
	case !s.Older():
		return "", nil
	case s.Interrupted:
		s.Current--
	}
	steps, err := fs.Glob(files, string(Postgres)+"/*.up.sql") // sorted
	if err != nil {
		return "", err
	}
	var script strings.Builder
	for _, step := range steps[s.Current:] {
		text, err := files.ReadFile(step)
		if err != nil {
			return "", err
		}
		script.Write(text)
		script.WriteString(";\n")
	}
	return script.String() + "ALTER TABLE schema_migrations ADD COLUMN IF NOT EXISTS release text;\n" + recorded(newest), nil
}
