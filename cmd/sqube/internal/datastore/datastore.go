// Package datastore parses the name of a database on the command line, and opens the database with its engine.
package datastore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sqube/sqube/cmd/sqube/internal/terminal"
	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/migrations"
)

// Datastore names a database. The errors of its methods are one line each.
type Datastore struct {
	Path string // of an SQLite file
	DSN  string // of a Postgres database; empty on SQLite
	// password prints the password for a Postgres database. It is nil if that is in the DSN, the environment or a password file.
	password *postgres.PasswordCommand
	// Memory means a new in-memory database, instead of Path and DSN.
	Memory bool
	// Timeout is how long the requests of a server wait for Postgres; 0 for no limit.
	Timeout time.Duration
	// Cluster is the cluster that a server hosts whose database this is; "" for the server's own.
	Cluster  string
	dataDir  string   // of the server
	clusters *Schemas // nil if it hosts no clusters
	// NoSync lets the system decide when to write SQLite's file to disk: the data survives the process, but not the machine.
	NoSync bool
}

// Parse parses the value of --datastore: sqlite://PATH, or a URL of Postgres in libpq's syntax. An empty value means sqube.db in the
// folder dataDir.
func Parse(flag, dataDir string) (Datastore, error) {
	scheme, rest, found := strings.Cut(flag, "://")
	switch {
	case flag == "":
		return Datastore{Path: filepath.Join(dataDir, fileName), dataDir: dataDir}, nil
	case found && scheme == "sqlite" && rest != "":
		path, err := url.PathUnescape(rest)
		if err != nil {
			return Datastore{}, fmt.Errorf("--datastore sqlite://PATH: %w", err)
		}
		return Datastore{Path: path, dataDir: dataDir}, nil
	case found && (scheme == "postgres" || scheme == "postgresql"):
		if u, err := url.Parse(flag); err == nil && u.User == nil && strings.Contains(u.EscapedPath()+u.Fragment, "@") {
			// Messages would show the rest of the password as the name of the database.
			return Datastore{}, errors.New("--datastore must have / in the password as %2F, and # as %23")
		}
		return Datastore{DSN: flag, dataDir: dataDir}, nil
	}
	// The value may hold a password, so it is not repeated.
	return Datastore{}, errors.New("--datastore must be sqlite://PATH or postgres://USER:PASSWORD@HOST:PORT/DATABASE")
}

// UsePasswordCommand has a program print the password for new connections to a Postgres database: see postgres.NewPasswordCommand.
func (d *Datastore) UsePasswordCommand(line string) { d.password = postgres.NewPasswordCommand(line) }

// Named reports whether text names a database in the syntax of --datastore, rather than a file, even if the syntax is wrong. It may
// contain a password, so it must not be repeated.
func Named(text string) bool {
	return strings.Contains(text, "://") || strings.HasPrefix(text, "postgres") && strings.Contains(text, "@") || strings.Contains(text, "password=")
}

// HasPassword reports whether a value of --datastore may contain a password.
func HasPassword(flag string) bool {
	if !strings.Contains(flag, "://") || strings.HasPrefix(flag, "sqlite://") {
		return false // not a DSN
	}
	u, err := url.Parse(flag)
	if err != nil {
		return true
	}
	_, given := u.User.Password()
	return given || u.Query().Has("password") || u.Query().Has("sslpassword")
}

// Shared reports whether other servers may use the same database.
func (d Datastore) Shared() bool { return d.DSN != "" }

// String names the database without its secrets.
func (d Datastore) String() string {
	if d.Memory {
		return "memory"
	}
	if d.DSN == "" {
		return "sqlite://" + d.Path
	}
	u, err := url.Parse(d.DSN)
	if err != nil {
		return "postgres://…"
	}
	// Only these parts can't contain secrets.
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// InMemory reports whether the server of the folder runs with --in-memory: such a server has only a kubeconfig there.
func InMemory(dataDir string) bool {
	_, kubeconfig := os.Stat(filepath.Join(dataDir, "admin.kubeconfig"))
	_, keys := os.Stat(filepath.Join(dataDir, "pki"))
	return kubeconfig == nil && errors.Is(keys, fs.ErrNotExist)
}

// explain returns the error of a read on one line. If there is no file, it says why, or what to do.
func (d Datastore) explain(err error) error {
	if d.DSN != "" || !errors.Is(err, fs.ErrNotExist) {
		return terminal.OneLine(err)
	}
	dataDir := filepath.Dir(d.Path)
	if InMemory(dataDir) {
		return fmt.Errorf("%w: the server of %s runs with --in-memory, so its state is in no file", terminal.OneLine(err), dataDir)
	}
	return fmt.Errorf("%w: give the server's --data-dir, --datastore or --config", terminal.OneLine(err))
}

// postgres returns how to connect to a Postgres database.
func (d Datastore) postgres() postgres.Database {
	return postgres.Database{DSN: d.DSN, Password: d.password}
}

// Engine is a database opened for serving or for changes.
type Engine interface {
	dialect.Engine

	// Exec runs a statement that changes the log, for repairs.
	Exec(ctx context.Context, statement string, args ...any) error
}

// Open opens the database to be served, with its schema brought up to date.
func (d Datastore) Open(ctx context.Context) (engine Engine, err error) {
	switch {
	case d.Memory:
		engine, err = sqlite.OpenMemory(ctx)
	case d.Shared() && d.Cluster != "":
		err = errHosted
	case d.clusters != nil:
		engine, err = d.clusters.open(ctx, d)
	case d.DSN != "":
		engine, err = postgres.OpenWithin(ctx, d.postgres(), d.Timeout)
	default:
		engine, err = sqlite.OpenWith(ctx, d.Path, sqlite.Options{NoSync: d.NoSync})
	}
	if err != nil {
		return nil, terminal.OneLine(err)
	}
	return engine, nil
}

// Scratch is a database that this process alone builds, for itself.
type Scratch interface {
	Engine

	// Append adds rows to the log with their ids, and closes those that they replace.
	Append(ctx context.Context, rows []*dialect.LogRow) error
}

// OpenScratch creates a database in a file.
func OpenScratch(ctx context.Context, path string) (Scratch, error) {
	engine, err := sqlite.OpenWith(ctx, path, sqlite.Options{NoSync: true})
	if err != nil {
		return nil, terminal.OneLine(err)
	}
	return engine, nil
}

// Migrate brings the schema of the database up to date and returns its former state.
func (d Datastore) Migrate(ctx context.Context) (before migrations.Status, err error) {
	if d.Shared() && d.Cluster != "" {
		return before, errHosted
	}
	if d.DSN != "" {
		before, err = postgres.Migrate(ctx, d.postgres())
	} else {
		before, err = sqlite.Migrate(ctx, d.Path)
	}
	return before, terminal.OneLine(err)
}

// Current returns the database, or if it is a file with an older schema, an upgraded copy, which remove removes. The database is not changed.
func (d Datastore) Current(ctx context.Context) (current Datastore, remove func() error, err error) {
	if d.DSN != "" {
		return d, func() error { return nil }, nil
	}
	path, remove, err := sqlite.Current(ctx, d.Path)
	return Datastore{Path: path}, remove, terminal.OneLine(err)
}

// OpenReader opens the database for reading, even while it is served.
func (d Datastore) OpenReader(ctx context.Context) (reader dialect.Reader, err error) {
	if d.DSN != "" {
		reader, err = postgres.OpenReader(ctx, d.postgres())
	} else {
		reader, err = sqlite.OpenReader(ctx, d.Path)
	}
	return reader, d.explain(err)
}

// Unserved returns an error if a server uses the database, as far as it can be detected. On SQLite it returns nil: opening the
// database locks it.
func (d Datastore) Unserved(ctx context.Context) error {
	if d.DSN == "" {
		return nil
	}
	if d.Cluster != "" {
		return errHosted
	}
	return terminal.OneLine(postgres.Unserved(ctx, d.postgres()))
}

// Status returns the state of the schema, without changing it.
func (d Datastore) Status(ctx context.Context) (status migrations.Status, err error) {
	if d.DSN != "" {
		status, err = postgres.Status(ctx, d.postgres())
	} else {
		status, err = sqlite.Status(ctx, d.Path)
	}
	return status, d.explain(err)
}

// Verify checks the integrity of an SQLite file. Postgres verifies its files itself.
func (d Datastore) Verify(ctx context.Context) error {
	if d.DSN != "" {
		return nil
	}
	return d.explain(sqlite.Verify(ctx, d.Path))
}

// Complete returns an error if an SQLite file lacks its write-ahead log, with its last commits.
func (d Datastore) Complete() error {
	if d.DSN != "" {
		return nil
	}
	return terminal.OneLine(sqlite.Complete(d.Path))
}

// Backup writes a consistent copy of the database to an empty file, even while it is served, and checks it: an SQLite file, or an
// archive of pg_dump.
func (d Datastore) Backup(ctx context.Context, to *os.File) error {
	if d.Shared() && d.Cluster != "" {
		return errors.New("on Postgres, one hosted cluster is backed up with --follow")
	}
	if d.DSN != "" {
		return d.explain(postgres.Dump(ctx, d.postgres(), to))
	}
	return d.explain(sqlite.Backup(ctx, d.Path, to))
}

// Fill calls fill to fill the database, which must be empty; otherwise the error wraps dialect.ErrNotEmpty. With replace, former
// content is moved aside, and the database must not be served. aside is the new place of that content, "" if there was none, and
// replaced its end, with revision 0 if that can't be read. If anything fails, or the process dies, the database is unchanged.
func (d Datastore) Fill(ctx context.Context, replace bool, fill func(e Engine, replaced dialect.End) error) (aside string, err error) {
	if d.Shared() && d.Cluster != "" {
		return "", errHosted
	}
	if d.DSN != "" {
		aside, err = postgres.Replace(ctx, d.postgres(), replace, time.Now(), func(e *postgres.Engine, replaced dialect.End) error { return fill(e, replaced) })
	} else {
		aside, err = sqlite.Replace(ctx, d.Path, replace, time.Now(), func(e *sqlite.Engine, replaced dialect.End) error { return fill(e, replaced) })
	}
	return aside, terminal.OneLine(d.asleep(err))
}

// RestoreDump is Fill for a Postgres database and an archive of pg_dump. It also returns the revision of the archive. The
// counter jumps ahead of that, see dialect.RevisionJump.
func (d Datastore) RestoreDump(ctx context.Context, file string, replace bool) (revision int64, aside string, err error) {
	revision, aside, err = postgres.RestoreDump(ctx, d.postgres(), file, replace, time.Now())
	return revision, aside, terminal.OneLine(err)
}

// ReadOnly returns a name with which the driver "sqlite" opens any SQLite file without changing it. unchanged returns an error if the
// file was changed meanwhile in a way that may have corrupted the reads.
func ReadOnly(path string) (name string, unchanged func() error, err error) {
	return sqlite.ReadOnly(path)
}
