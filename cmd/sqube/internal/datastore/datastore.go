// Package datastore parses what names a database on the command line, and opens it on its engine.
package datastore

import (
	"context"
	"errors"
	"fmt"
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
	// Memory means a new database in memory, instead of the other two.
	Memory bool
	// Timeout is how long the requests of a server wait for Postgres; 0 for no limit.
	Timeout time.Duration
	// NoSync leaves it to the system when SQLite's file is written to disk: what it holds outlives the process, not the machine.
	NoSync bool
}

// Parse parses the value of --datastore: sqlite://PATH, or a URL of Postgres as libpq takes it. An empty one is
// sqube.db in the folder dataDir.
func Parse(flag, dataDir string) (Datastore, error) {
	scheme, rest, found := strings.Cut(flag, "://")
	switch {
	case flag == "":
		return Datastore{Path: filepath.Join(dataDir, "sqube.db")}, nil
	case found && scheme == "sqlite" && rest != "":
		path, err := url.PathUnescape(rest)
		if err != nil {
			return Datastore{}, fmt.Errorf("--datastore sqlite://PATH: %w", err)
		}
		return Datastore{Path: path}, nil
	case found && (scheme == "postgres" || scheme == "postgresql"):
		return Datastore{DSN: flag}, nil
	}
	// The value may hold a password, so it is not repeated.
	return Datastore{}, errors.New("--datastore must be sqlite://PATH or postgres://USER:PASSWORD@HOST:PORT/DATABASE")
}

// Named reports whether text means a database as --datastore does, rather than a file, even if it is not written right. Such a
// text may hold a password, and is not to be repeated.
func Named(text string) bool {
	return strings.Contains(text, "://") || strings.HasPrefix(text, "postgres") && strings.Contains(text, "@") || strings.Contains(text, "password=")
}

// HasPassword reports whether a value of --datastore holds a password, also where that is not clear.
func HasPassword(flag string) bool {
	if !strings.Contains(flag, "://") || strings.HasPrefix(flag, "sqlite://") {
		return false // no database's DSN
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
	// Only these parts can hold no secret.
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Engine is a database that is open to be served, or changed.
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
	case d.DSN != "":
		engine, err = postgres.OpenWithin(ctx, d.DSN, d.Timeout)
	default:
		engine, err = sqlite.OpenWith(ctx, d.Path, sqlite.Options{NoSync: d.NoSync})
	}
	if err != nil {
		return nil, terminal.OneLine(err)
	}
	return engine, nil
}

// Migrate brings the schema of the database up to date and returns where it stood before.
func (d Datastore) Migrate(ctx context.Context) (before migrations.Status, err error) {
	if d.DSN != "" {
		before, err = postgres.Migrate(ctx, d.DSN)
	} else {
		before, err = sqlite.Migrate(ctx, d.Path)
	}
	return before, terminal.OneLine(err)
}

// OpenReader opens the database to look into it, while it may be served.
func (d Datastore) OpenReader(ctx context.Context) (reader dialect.Reader, err error) {
	if d.DSN != "" {
		reader, err = postgres.OpenReader(ctx, d.DSN)
	} else {
		reader, err = sqlite.OpenReader(ctx, d.Path)
	}
	return reader, terminal.OneLine(err)
}

// Unserved returns nil when no server uses the database, as far as can be told, or an error. SQLite's is locked by
// whoever opens it.
func (d Datastore) Unserved(ctx context.Context) error {
	if d.DSN == "" {
		return nil
	}
	return terminal.OneLine(postgres.Unserved(ctx, d.DSN))
}

// Status tells where the schema stands, without changing it.
func (d Datastore) Status(ctx context.Context) (status migrations.Status, err error) {
	if d.DSN != "" {
		status, err = postgres.Status(ctx, d.DSN)
	} else {
		status, err = sqlite.Status(ctx, d.Path)
	}
	return status, terminal.OneLine(err)
}

// Verify looks whether an SQLite file is whole. Postgres verifies its files itself.
func (d Datastore) Verify(ctx context.Context) error {
	if d.DSN != "" {
		return nil
	}
	return terminal.OneLine(sqlite.Verify(ctx, d.Path))
}

// Backup writes the database, as of one moment, to an empty file, also while it is served, and checks it: an SQLite file,
// or an archive of Postgres' pg_dump.
func (d Datastore) Backup(ctx context.Context, to *os.File) error {
	if d.DSN != "" {
		return terminal.OneLine(postgres.Dump(ctx, d.DSN, to))
	}
	return terminal.OneLine(sqlite.Backup(ctx, d.Path, to))
}

// Fill has fill fill the database, which must be empty, or with replace may hold something and must not be served. What
// Fill returns as aside is where that is then, "" where there was nothing. When fill or anything else fails, or the process
// dies, the database is as it was before. The error is dialect.ErrNotEmpty where the database is not empty.
func (d Datastore) Fill(ctx context.Context, replace bool, fill func(Engine) error) (aside string, err error) {
	if d.DSN != "" {
		aside, err = postgres.Replace(ctx, d.DSN, replace, time.Now(), func(e *postgres.Engine) error { return fill(e) })
	} else {
		aside, err = sqlite.Replace(ctx, d.Path, replace, time.Now(), func(e *sqlite.Engine) error { return fill(e) })
	}
	return aside, terminal.OneLine(err)
}

// RestoreDump is Fill for a Postgres database and an archive of pg_dump. It also returns the revision of the archive. The
// counter jumps ahead of that, see dialect.RevisionJump.
func (d Datastore) RestoreDump(ctx context.Context, file string, replace bool) (revision int64, aside string, err error) {
	revision, aside, err = postgres.RestoreDump(ctx, d.DSN, file, replace, time.Now())
	return revision, aside, terminal.OneLine(err)
}

// ReadOnly returns a name for the driver "sqlite" of any SQLite file, by which it can't be changed, and what fails after a
// use if it was changed meanwhile in a way that may have spoiled what was read.
func ReadOnly(path string) (name string, unchanged func() error, err error) {
	return sqlite.ReadOnly(path)
}
