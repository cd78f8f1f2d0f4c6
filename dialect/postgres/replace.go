package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
)

// logObjects are the tables and views of a log. Indexes move with their tables.
var logObjects = []struct{ kind, name string }{{"VIEW", "objects"}, {"VIEW", "history"}, {"TABLE", "log"}, {"TABLE", "past"}, {"TABLE", "counter"}, {"TABLE", "schema_migrations"}}

// unfinished is the schema in which a log is filled before it replaces another.
const unfinished = "sqube_unfinished"

// Replace fills a log in a database with fill. Without force, the log must be empty, and fill must leave it so if it
// fails. With force, an existing log stays in place, unchanged, until the new one is complete. It then moves to another schema,
// and Replace returns that schema's name, or "" if there was no log. fill also gets the end of that log, with revision 0 if there
// is none or it can't be read. With force, Replace returns dialect.ErrLocked if a server is connected.
func Replace(ctx context.Context, d Database, force bool, now time.Time, fill func(e *Engine, replaced dialect.End) error) (aside string, err error) {
	if !force {
		return "", with(ctx, d, func(e *Engine) error { return fill(e, dialect.End{}) })
	}
	conn, err := connect(ctx, d)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if err := lockRestore(ctx, conn); err != nil {
		return "", err
	}
	if err := awaitUnserved(ctx, conn); err != nil {
		return "", err
	}
	if _, err := conn.Exec(ctx, "DROP SCHEMA IF EXISTS "+unfinished+" CASCADE; CREATE SCHEMA "+unfinished); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_, failed := conn.Exec(context.WithoutCancel(ctx), "DROP SCHEMA IF EXISTS "+unfinished+" CASCADE")
			err = errors.Join(err, failed)
		}
	}()
	within := Database{Password: d.Password}
	within.DSN, err = inSchema(d.DSN, unfinished)
	if err != nil {
		return "", err
	}
	replaced := endOf(ctx, conn)
	if err := with(ctx, within, func(e *Engine) error { return fill(e, replaced) }); err != nil {
		return "", err
	}
	if err := awaitUnserved(ctx, conn); err != nil {
		return "", err
	}
	return exchange(ctx, conn, now)
}

// endOf returns the end of the log, by what can be read of it.
func endOf(ctx context.Context, conn *session) (end dialect.End) {
	_ = conn.QueryRow(ctx, "SELECT revision FROM counter").Scan(&end.Revision)
	_ = conn.QueryRow(ctx, "SELECT written_at FROM counter").Scan(&end.WrittenAt) // older schemas have none
	return end
}

// with calls use with an engine on the database.
func with(ctx context.Context, d Database, use func(*Engine) error) error {
	engine, err := OpenWithin(ctx, d, 0)
	if err != nil {
		return err
	}
	return errors.Join(use(engine), engine.Close())
}

// session is the session of a command.
type session struct {
	*pgx.Conn
	server string   // the application name of servers
	flush  []string // statements of a transaction that must be on disk when its commit is acknowledged
}

func connect(ctx context.Context, d Database) (*session, error) {
	config, err := d.parse()
	if err != nil {
		return nil, err
	}
	server := nameCommand(config)
	findPrimary(config)
	s := &session{server: server}
	if !durabilityGiven(config.ConnConfig) {
		s.flush = []string{"DO $$ BEGIN PERFORM " + flush + "; END $$"}
	}
	s.Conn, err = dial(ctx, config)
	return s, withHint(err)
}

// exchange puts the existing log aside and replaces it with the unfinished one.
func exchange(ctx context.Context, conn *session, now time.Time) (aside string, err error) {
	place, there, err := find(ctx, conn)
	if err != nil {
		return "", err
	}
	var statements []string
	if there {
		aside, statements = putAside(conn, place, now)
	}
	statements = append(append(append(statements, move(unfinished, place)...), "DROP SCHEMA "+unfinished), conn.flush...)
	return aside, pgx.BeginFunc(ctx, conn.Conn, func(tx pgx.Tx) error {
		for _, statement := range statements {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

// find returns the schema of the log, or the one to create it in.
func find(ctx context.Context, conn *session) (schema string, there bool, err error) {
	const where = "SELECT coalesce((SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('log')), quote_ident(current_schema())), to_regclass('log') IS NOT NULL"
	err = conn.QueryRow(ctx, where).Scan(&schema, &there)
	return schema, there, err
}

// putAside returns the name of a new schema, and the statements that move a log to it. They fail if a server has connected
// meanwhile: it would keep writing to the old log.
func putAside(conn *session, schema string, now time.Time) (aside string, statements []string) {
	aside = "before_restore_" + strings.ReplaceAll(now.UTC().Format("20060102t150405.000z"), ".", "_")
	server := "'" + strings.ReplaceAll(conn.server, "'", "''") + "'"
	return aside, append([]string{
		"LOCK TABLE " + schema + ".log, " + schema + ".counter IN ACCESS EXCLUSIVE MODE",
		fmt.Sprintf("DO $$ BEGIN IF (%s) > 0 THEN RAISE EXCEPTION '%s'; END IF; END $$", fmt.Sprintf(sessions, server), dialect.ErrLocked),
		"CREATE SCHEMA " + aside,
	}, move(schema, aside)...)
}

// move returns the statements that move a log from one schema to another.
func move(from, to string) (statements []string) {
	for _, o := range logObjects {
		statements = append(statements, "ALTER "+o.kind+" "+from+"."+o.name+" SET SCHEMA "+to)
	}
	return statements
}

// inSchema returns dsn with another schema, for the sessions of commands.
func inSchema(dsn, schema string) (string, error) {
	u, query, err := parseURL(dsn)
	if err != nil {
		return "", err
	}
	query.Set("search_path", schema)
	query.Set("application_name", "sqube-command")
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	return u.String(), nil
}

// restoreKey is the advisory lock of a restore.
const restoreKey int64 = 0x72657374 // "rest"

// lockRestore blocks other restores while conn is open, on engines with advisory locks.
func lockRestore(ctx context.Context, conn *session) error {
	locked := false
	err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", restoreKey).Scan(&locked)
	switch {
	case unsupported(err):
		return nil
	case err == nil && !locked:
		return fmt.Errorf("%w, which restores it: wait for that one", dialect.ErrLocked)
	}
	return err
}

// Unserved returns dialect.ErrLocked if a server is connected to the database.
func Unserved(ctx context.Context, d Database) error {
	conn, err := connect(ctx, d)
	if err != nil {
		return err
	}
	return errors.Join(awaitUnserved(ctx, conn), conn.Close(context.WithoutCancel(ctx)))
}

// sessionGrace is how long to wait for sessions that may be ending, such as those of a server that was just stopped.
const sessionGrace = 2 * time.Second

// sessions counts the sessions of servers.
const sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"

// awaitUnserved waits for the sessions of servers to end.
func awaitUnserved(ctx context.Context, conn *session) error {
	ticker := time.NewTicker(sessionGrace / 20)
	defer ticker.Stop()
	for deadline := time.Now().Add(sessionGrace); ; {
		var others int
		if err := conn.QueryRow(ctx, fmt.Sprintf(sessions, "$1"), conn.server).Scan(&others); err != nil {
			return err
		}
		switch {
		case others == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%w (%d connections): stop that one first", dialect.ErrLocked, others)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
