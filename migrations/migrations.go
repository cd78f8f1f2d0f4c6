// Package migrations holds the schema, one numbered step at a time, and takes
// a database from any earlier step to the newest.
//
// The same number means the same change on every engine; a step that has
// nothing to do on one of them says so in its file. Every step can be run
// again after it was cut off: golang-migrate marks a step before it runs it
// and clears the mark after, so power lost in between leaves a mark that does
// not tell whether the step happened. Up then runs that step again.
//
// A step leaves what servers of the version before use, since these may go on
// while newer ones join them. One that was released never changes. The tests
// take each version that there ever was to the newest, with the rows of testdata
// in it: a step that gives rows another form comes with a file of rows in that
// form.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
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
var ErrNewer = errors.New("use a sqube at least as new as the one that last served it")

// Usable returns nil when the schema is this binary's, or an error that says
// what to do, an ErrNewer when it is ahead.
func (s Status) Usable() error {
	switch {
	case s.Current == 0:
		return errors.New("no sqube has served it: there is nothing in it")
	case s.Current > s.Newest:
		return s.newer()
	case s.Interrupted:
		return fmt.Errorf("step %d of its schema was interrupted: run sqube migrate up, or serve, first", s.Current)
	case s.Current < s.Newest:
		return fmt.Errorf("it has schema %d, and this binary reads schema %d: run sqube migrate up, or serve, first", s.Current, s.Newest)
	}
	return nil
}

// Older says that a former sqube made the schema, or that its last step was cut
// off: Up has something to do.
func (s Status) Older() bool {
	return s.Current != 0 && (s.Current < s.Newest || s.Current == s.Newest && s.Interrupted)
}

func (s Status) newer() error {
	return fmt.Errorf("it has schema %d, and this binary knows those up to %d: %w", s.Current, s.Newest, ErrNewer)
}

// Up takes db to the newest step and returns where it stood before. It returns
// ErrNewer, and does nothing, when db is ahead of this binary. Of several
// processes that come at once one takes the steps and the others wait for it,
// or until ctx ends. A step that fails changes nothing, and is taken again by
// the next Up.
func Up(ctx context.Context, db *sql.DB, engine Engine) (before Status, err error) {
	unlock, err := lock(ctx, db, engine)
	if err != nil {
		return before, fmt.Errorf("waiting for others that change the schema: %w", err)
	}
	defer unlock()
	m, before, err := open(db, engine)
	if err != nil {
		return before, err
	}
	if before.Current > before.Newest {
		return before, before.newer()
	}
	if before.Older() {
		slog.Info("bringing the schema up to date", "from", before.Current, "to", before.Newest)
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
		step, _, _ := m.Version() // 0 if it can't be told
		return before, fmt.Errorf("step %d of the schema failed, nothing was changed, and the next start or sqube migrate up takes it again: %w", step, cause(err))
	}
	return before, nil
}

// lock keeps other processes out of Up until unlock is called. golang-migrate
// has a lock of its own, but only around the steps: who looks at the version
// while another is at a step sees one that was interrupted. On SQLite there
// are no others, the engine has locked the file.
func lock(ctx context.Context, db *sql.DB, engine Engine) (unlock func(), err error) {
	if engine == Postgres {
		return lockPostgres(ctx, db)
	}
	return func() {}, nil
}

// Read returns where db stands, and changes nothing in it.
func Read(ctx context.Context, db *sql.DB, engine Engine) (status Status, err error) {
	steps, err := iofs.New(files, string(engine))
	if err != nil {
		return status, err
	}
	if status.Newest, err = newest(steps); err != nil {
		return status, err
	}
	var known int
	if err := db.QueryRowContext(ctx, hasVersion[engine]).Scan(&known); err != nil || known == 0 {
		return status, versionError(err)
	}
	var version int
	err = db.QueryRowContext(ctx, "SELECT version, dirty FROM schema_migrations").Scan(&version, &status.Interrupted)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return status, nil
	case version != database.NilVersion:
		status.Current = uint(version)
	}
	return status, versionError(err)
}

// hasVersion counts golang-migrate's table, which its drivers would make.
var hasVersion = map[Engine]string{
	SQLite:   "SELECT count(*) FROM sqlite_master WHERE name = 'schema_migrations'",
	Postgres: "SELECT count(to_regclass('schema_migrations'))",
}

func versionError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("reading the schema version: %w", cause(err))
}

// cause takes an error of the database out of golang-migrate's, which does not
// unwrap and repeats the whole step.
func cause(err error) error {
	if wrapped := new(database.Error); errors.As(err, &wrapped) || errors.As(err, wrapped) {
		return wrapped.OrigErr
	}
	return err
}

// open returns what takes db from step to step, and where it stands.
func open(db *sql.DB, engine Engine) (m *migrate.Migrate, status Status, err error) {
	steps, err := iofs.New(files, string(engine))
	if err != nil {
		return nil, status, err
	}
	if status.Newest, err = newest(steps); err != nil {
		return nil, status, err
	}
	driver, err := connect(db, engine)
	if err != nil {
		return nil, status, versionError(err)
	}
	version, dirty, err := driver.Version()
	if err != nil {
		return nil, status, versionError(err)
	}
	if version != database.NilVersion {
		status.Current = uint(version)
	}
	status.Interrupted = dirty
	m, err = migrate.NewWithInstance("embedded", steps, string(engine), driver)
	return m, status, err
}

// connect returns what runs steps on db. It has nothing to give back.
func connect(db *sql.DB, engine Engine) (database.Driver, error) {
	switch engine {
	case SQLite:
		return sqlite.WithInstance(db, &sqlite.Config{})
	case Postgres:
		return newPostgresDriver(db)
	}
	return nil, fmt.Errorf("no schema for engine %q", engine)
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
