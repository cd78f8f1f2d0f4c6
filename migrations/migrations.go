// Package migrations holds the schema, one numbered step at a time, and takes
// a database from any earlier step to the newest.
//
// The same number means the same change on every engine; a step that has
// nothing to do on one of them says so in its file. Every step can be run
// again after it was cut off: golang-migrate marks a step before it runs it
// and clears the mark after, so power lost in between leaves a mark that does
// not tell whether the step happened. Up then runs that step again.
package migrations

import (
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	pgx "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"
)

//go:embed sqlite/*.sql postgres/*.sql
var files embed.FS

// Engine names a folder of steps.
type Engine string

// The engines that have steps.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// Status is where a database stands.
type Status struct {
	Current uint // the last step taken, 0 for none
	Newest  uint // the last step this binary knows
	// Interrupted is set when the step Current was begun and not seen to end.
	Interrupted bool
}

// ErrNewer says that the database was made by a newer sqube.
var ErrNewer = errors.New("the database has a newer schema than this binary knows: use a sqube at least as new as the one that last served it")

// Up takes db to the newest step and returns where it stood before. It
// returns ErrNewer, and does nothing, when db is ahead of this binary.
func Up(db *sql.DB, engine Engine) (before Status, err error) {
	m, before, err := open(db, engine)
	if err != nil {
		return before, err
	}
	if before.Current > before.Newest {
		return before, fmt.Errorf("%w (schema %d, binary %d)", ErrNewer, before.Current, before.Newest)
	}
	if before.Interrupted {
		previous := int(before.Current) - 1
		if previous == 0 {
			previous = database.NilVersion
		}
		if err := m.Force(previous); err != nil {
			return before, fmt.Errorf("taking up the interrupted schema step %d: %w", before.Current, err)
		}
	}
	if err := m.Up(); err != nil && !errors.Is(err, migrate.ErrNoChange) {
		return before, fmt.Errorf("schema step after %d: %w", before.Current, err)
	}
	return before, nil
}

// Read returns where db stands without changing its schema.
func Read(db *sql.DB, engine Engine) (Status, error) {
	_, status, err := open(db, engine)
	return status, err
}

func open(db *sql.DB, engine Engine) (*migrate.Migrate, Status, error) {
	var status Status
	steps, err := iofs.New(files, string(engine))
	if err != nil {
		return nil, status, err
	}
	if status.Newest, err = newest(steps); err != nil {
		return nil, status, err
	}
	var driver database.Driver
	switch engine {
	case SQLite:
		driver, err = sqlite.WithInstance(db, &sqlite.Config{})
	case Postgres:
		driver, err = pgx.WithInstance(db, &pgx.Config{MultiStatementEnabled: false})
	default:
		err = fmt.Errorf("no schema for engine %q", engine)
	}
	if err != nil {
		return nil, status, fmt.Errorf("reading the schema version: %w", err)
	}
	version, dirty, err := driver.Version()
	if err != nil {
		return nil, status, fmt.Errorf("reading the schema version: %w", err)
	}
	if version != database.NilVersion {
		status.Current = uint(version)
	}
	status.Interrupted = dirty
	m, err := migrate.NewWithInstance("embedded", steps, string(engine), driver)
	return m, status, err
}

func newest(steps source.Driver) (uint, error) {
	version, err := steps.First()
	for err == nil {
		var next uint
		if next, err = steps.Next(version); err == nil {
			version = next
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return version, nil
	}
	return 0, err
}
