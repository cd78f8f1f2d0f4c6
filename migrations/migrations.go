// Package migrations holds the schema as numbered steps, and migrates a database from any step to the newest.
//
// A number means the same change on every engine; if there is nothing to do on one of them, the step's file says so. Every step
// can be run again after an interruption: golang-migrate marks a step before it runs and clears the mark afterwards, so a mark
// left by a power failure does not tell whether the step happened. Up then runs it again.
//
// A step leaves in place what servers of the previous version use, since they may keep running alongside newer ones. A released
// step never changes. The tests migrate every released version to the newest, filled with the rows of testdata: a step that
// changes the format of rows adds a file with rows in the new format.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"strconv"
	"strings"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/source/iofs"
)

//go:embed sqlite/*.sql postgres/*.sql
var files embed.FS

// Engine is an engine with a folder of steps.
type Engine string

// The engines.
const (
	SQLite   Engine = "sqlite"
	Postgres Engine = "postgres"
)

// Status is the schema version of a database.
type Status struct {
	Current uint // the last step applied, 0 for none
	Newest  uint // the last step that this binary knows
	// Interrupted is set if the step Current began and is not known to have ended.
	Interrupted bool
	// Release is the sqube that applied the step Current, "" if that is unknown.
	Release string
}

// Release is this sqube's release, as in its packages' names. The Makefile sets it.
var Release = "(unreleased)"

// ErrNewer is returned for a database with the schema of a newer sqube.
var ErrNewer = errors.New("use a sqube at least as new as the one that last served it, or restore a copy from before")

// Usable returns nil if the schema is this binary's, and otherwise an error that says what to do. It wraps ErrNewer if the schema
// is newer.
func (s Status) Usable() error {
	switch {
	case s.Current == 0:
		return errors.New("no sqube has served it: there is nothing in it")
	case s.Current > s.Newest:
		return s.newer()
	case s.Interrupted:
		return fmt.Errorf("step %d of its schema was interrupted: run sqube migrate up, or serve, first", s.Current)
	case s.Current < s.Newest:
		return fmt.Errorf("%s reads schema %d: run sqube migrate up, or serve, first", s.compared(), s.Newest)
	}
	return nil
}

// Older reports whether Up has something to do: an older sqube made the schema, or its last step was interrupted.
func (s Status) Older() bool {
	return s.Current != 0 && (s.Current < s.Newest || s.Current == s.Newest && s.Interrupted)
}

// UpToDate reports whether Up has nothing to do.
func (s Status) UpToDate() bool { return s.Current != 0 && s.Current == s.Newest && !s.Interrupted }

func (s Status) newer() error {
	return fmt.Errorf("%s knows those up to %d: %w", s.compared(), s.Newest, ErrNewer)
}

// compared is the beginning of a sentence about the database and this binary.
func (s Status) compared() string {
	if s.Release == "" {
		return fmt.Sprintf("it has schema %d, and this binary", s.Current)
	}
	return fmt.Sprintf("it has schema %d, made by sqube %s, and this binary, sqube %s,", s.Current, s.Release, Release)
}

// Up migrates db to the newest step and returns its previous status. If db is newer than this binary, it does nothing and returns
// ErrNewer. If several processes call it at once, one migrates and the others wait for it or until ctx ends. A step that fails
// changes nothing, and the next Up runs it again.
func Up(ctx context.Context, db *sql.DB, engine Engine) (before Status, err error) {
	unlock, err := lock(ctx, db, engine)
	if err != nil {
		return before, fmt.Errorf("waiting for others that are migrating the schema: %w", err)
	}
	defer unlock()
	if before, err = Check(ctx, db, engine); err != nil {
		return before, err
	}
	m, err := open(db, engine)
	if err != nil {
		return before, err
	}
	if before.Older() {
		slog.Info("bringing the schema up to date", "from", before.Current, "to", before.Newest, "release", Release,
			"hint", "an older sqube can then serve only a copy that was made before, with sqube backup")
	}
	if before.Interrupted {
		previous := int(before.Current) - 1
		if previous == 0 {
			previous = database.NilVersion
		}
		if err := m.Force(previous); err != nil {
			return before, fmt.Errorf("resuming the interrupted schema step %d: %w", before.Current, err)
		}
	}
	if err := m.Up(); errors.Is(err, migrate.ErrNoChange) {
		return before, nil
	} else if err != nil {
		step, _, _ := m.Version() // 0 if unknown
		if step == 1 && before.Current == 0 {
			_, failed := db.ExecContext(ctx, "DROP TABLE schema_migrations") // which it made
			err = errors.Join(err, failed)
		}
		return before, fmt.Errorf("step %d of the schema failed, nothing was changed, and the next start or sqube migrate up takes it again: %w", step, cause(err))
	}
	if err := recordRelease(ctx, db, engine); err != nil {
		return before, fmt.Errorf("recording the release in the schema: %w", err)
	}
	return before, nil
}

// recordRelease records that this release has applied the steps, for older ones that find the database. golang-migrate replaces the row
// with each step.
func recordRelease(ctx context.Context, db *sql.DB, engine Engine) error {
	var known int
	err := db.QueryRowContext(ctx, hasRelease[engine]).Scan(&known)
	if err == nil && known == 0 {
		_, err = db.ExecContext(ctx, "ALTER TABLE schema_migrations ADD COLUMN release text")
	}
	if err == nil {
		_, err = db.ExecContext(ctx, "UPDATE schema_migrations SET release = '"+strings.ReplaceAll(Release, "'", "''")+"'")
	}
	return err
}

// lock keeps other processes out of Up until unlock is called. golang-migrate locks too, but only around the steps: a process
// that reads the version during a step would consider that interrupted. On SQLite there are no other processes, since the engine
// has locked the file.
func lock(ctx context.Context, db *sql.DB, engine Engine) (unlock func(), err error) {
	if engine == Postgres {
		return lockPostgres(ctx, db)
	}
	return func() {}, nil
}

// Check returns the status of db, and an error if Up would refuse it. It changes nothing.
func Check(ctx context.Context, db *sql.DB, engine Engine) (status Status, err error) {
	status, err = Read(ctx, db, engine)
	switch {
	case err != nil:
	case status.Current > status.Newest:
		err = status.newer()
	case status.Current == 0:
		err = checkNames(ctx, db, engine)
	}
	return status, err
}

// checkNames fails if db has something with a name that the steps use: they would change or drop it.
func checkNames(ctx context.Context, db *sql.DB, engine Engine) error {
	used := map[string]bool{}
	err := fs.WalkDir(files, string(engine), func(path string, _ fs.DirEntry, err error) error {
		if !strings.HasSuffix(path, ".up.sql") {
			return err
		}
		text, err := files.ReadFile(path)
		for _, found := range creates.FindAllSubmatch(text, -1) {
			used[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		return err
	}
	rows, err := db.QueryContext(ctx, allNames[engine])
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return err
		}
		if used[name] {
			return fmt.Errorf("it has a %q that sqube did not make: give sqube a database of its own", name)
		}
	}
	return rows.Err()
}

// creates finds what a step creates.
var creates = regexp.MustCompile(`CREATE (?:UNIQUE )?(?:TABLE|VIEW|INDEX)\s+(?:IF NOT EXISTS\s+)?(\w+)`)

// allNames lists what a database has that can't share a name.
var allNames = map[Engine]string{
	SQLite:   "SELECT lower(name) FROM sqlite_master ORDER BY 1",
	Postgres: "SELECT relname::text FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = current_schema() ORDER BY 1",
}

// Read returns the status of db, without changing it.
func Read(ctx context.Context, db *sql.DB, engine Engine) (status Status, err error) {
	if status.Newest, err = Newest(engine); err != nil {
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
	if err == nil {
		err = db.QueryRowContext(ctx, hasRelease[engine]).Scan(&known)
	}
	if err == nil && known > 0 {
		err = db.QueryRowContext(ctx, "SELECT coalesce(max(release), '') FROM schema_migrations").Scan(&status.Release)
	}
	return status, versionError(err)
}

// hasVersion counts golang-migrate's tables without creating one, as its drivers would.
var hasVersion = map[Engine]string{
	SQLite:   "SELECT count(*) FROM sqlite_master WHERE name = 'schema_migrations'",
	Postgres: "SELECT count(to_regclass('schema_migrations'))",
}

// hasRelease counts the columns for the release, which golang-migrate's tables lack.
var hasRelease = map[Engine]string{
	SQLite:   "SELECT count(*) FROM pragma_table_info('schema_migrations') WHERE name = 'release'",
	Postgres: "SELECT count(*) FROM pg_attribute WHERE attrelid = to_regclass('schema_migrations') AND attname = 'release' AND NOT attisdropped",
}

func versionError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("reading the schema version: %w", cause(err))
}

// cause returns the database's error in an error of golang-migrate, which repeats the whole step and has no Unwrap.
func cause(err error) error {
	if wrapped := new(database.Error); errors.As(err, &wrapped) || errors.As(err, wrapped) {
		return wrapped.OrigErr
	}
	return err
}

func open(db *sql.DB, engine Engine) (*migrate.Migrate, error) {
	steps, err := iofs.New(files, string(engine))
	if err != nil {
		return nil, err
	}
	driver, err := connect(db, engine)
	if err != nil {
		return nil, versionError(err)
	}
	return migrate.NewWithInstance("embedded", steps, string(engine), driver)
}

// connect returns the driver that runs steps on db. It need not be closed.
func connect(db *sql.DB, engine Engine) (database.Driver, error) {
	if engine == Postgres {
		return newPostgresDriver(db)
	}
	return sqlite.WithInstance(db, &sqlite.Config{})
}

// Newest returns the number of an engine's last step.
func Newest(engine Engine) (last uint, err error) {
	names, err := fs.Glob(files, string(engine)+"/*.up.sql")
	for _, name := range names {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, string(engine)+"/"), "_")
		step, err := strconv.ParseUint(number, 10, 0)
		if err != nil {
			return 0, err
		}
		last = max(last, uint(step))
	}
	return last, err
}
