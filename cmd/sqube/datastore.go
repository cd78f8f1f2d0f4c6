package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/dialect/postgres"
	"github.com/sqube/sqube/dialect/sqlite"
	"github.com/sqube/sqube/migrations"
)

// datastore is the database that --datastore names.
type datastore struct {
	flag string
	path string // of an SQLite file
	dsn  string // of a Postgres database
}

func (d *datastore) addFlag(fs *pflag.FlagSet) {
	fs.StringVar(&d.flag, "datastore", "", "Database that holds the cluster's state: sqlite://PATH, or postgres://USER:PASSWORD@HOST:PORT/DATABASE as libpq takes it. If unset, sqube.db under --data-dir.")
}

// complete takes the flag apart.
func (d *datastore) complete(dataDir string) error {
	scheme, rest, found := strings.Cut(d.flag, "://")
	switch {
	case d.flag == "":
		d.path = filepath.Join(dataDir, "sqube.db")
	case found && scheme == "sqlite" && rest != "":
		path, err := url.PathUnescape(rest)
		if err != nil {
			return fmt.Errorf("--datastore sqlite://PATH: %w", err)
		}
		d.path = path
	case found && (scheme == "postgres" || scheme == "postgresql"):
		d.dsn = d.flag
	default:
		// The value may hold a password, so it is not repeated.
		return errors.New("--datastore must be sqlite://PATH or postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	return nil
}

// shared says whether other servers may use the same database.
func (d *datastore) shared() bool { return d.dsn != "" }

// String names the database without its secrets.
func (d *datastore) String() string {
	if d.dsn == "" {
		return "sqlite://" + d.path
	}
	u, err := url.Parse(d.dsn)
	if err != nil {
		return "postgres://…"
	}
	// Only these parts can hold no secret.
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// open opens the database, with its schema brought up to date.
func (d *datastore) open(ctx context.Context) (engine dialect.Engine, err error) {
	if d.dsn != "" {
		engine, err = postgres.Open(ctx, d.dsn)
	} else {
		engine, err = sqlite.Open(ctx, d.path)
	}
	if err != nil {
		return nil, onOneLine(err)
	}
	return engine, nil
}

// read opens the database to look into it, while it may be served.
func (d *datastore) read(ctx context.Context) (reader dialect.Reader, err error) {
	if d.dsn != "" {
		reader, err = postgres.OpenReader(ctx, d.dsn)
	} else {
		reader, err = sqlite.OpenReader(ctx, d.path)
	}
	return reader, onOneLine(err)
}

// unserved returns nil when no server uses the database, as far as can be told, or dialect.ErrLocked. SQLite's is locked by
// whoever opens it.
func (d *datastore) unserved(ctx context.Context) error {
	if d.dsn == "" {
		return nil
	}
	return onOneLine(postgres.Unserved(ctx, d.dsn))
}

// status tells where the schema stands, without changing it.
func (d *datastore) status(ctx context.Context) (status migrations.Status, err error) {
	if d.dsn != "" {
		status, err = postgres.Status(ctx, d.dsn)
	} else {
		status, err = sqlite.Status(ctx, d.path)
	}
	return status, onOneLine(err)
}

// onOneLine makes one line of an error of a driver, which may have several for
// one cause.
func onOneLine(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.Join(strings.Fields(err.Error()), " "))
}
