// Package postgres keeps the log in a Postgres database that any number of sqube processes can share.
//
// Revisions come from one counter row, whose lock a commit holds until its end. So they become visible in order: a reader that
// has seen revision N has seen all earlier ones. A sequence would not do: it hands out numbers before the rows that carry them
// become visible.
//
// Every statement runs alone or in one pipelined batch, without session state, so that a pooler in transaction mode can be used.
// LISTEN has its own connection; without it, the counter is polled.
package postgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/migrations"
)

// Engine is a dialect.Engine on one Postgres database.
type Engine struct {
	pool *conns
	// writer has one connection for commits and one for compaction, so that neither waits for reads.
	writer   *conns
	serves   atomic.Bool // both pools are open
	listener *listener   // nil for a cluster, which has one writer
	cluster  *cluster    // nil for a log that several servers write to

	compacting compacting
	shrinking  shrinking
	unnotified unnotified

	capabilities capabilities
	seen         dialect.Newest // the newest revision that this process has seen committed
}

var _ dialect.Engine = (*Engine)(nil)

// Open connects to the database at dsn ("postgres://…", as libpq and pgx understand it) and migrates its schema. If several
// replicas start together, one migrates.
func Open(ctx context.Context, dsn string) (*Engine, error) {
	return OpenWithin(ctx, Database{DSN: dsn}, 0)
}

// OpenWithin is Open for a server whose requests wait no longer than timeout for the database; 0 means no limit. It gives up
// earlier on whatever could block them for longer, such as an unresponsive host or a client that died during a commit.
func OpenWithin(ctx context.Context, d Database, timeout time.Duration) (*Engine, error) {
	e, err := open(ctx, d, timeout, func(*pgxpool.Config) {})
	if err != nil {
		return nil, fmt.Errorf("opening the Postgres database: %w", withHint(err))
	}
	return e, nil
}

// open opens the log with a configuration of its connections that share may change.
func open(ctx context.Context, d Database, timeout time.Duration, share func(*pgxpool.Config)) (_ *Engine, err error) {
	e := &Engine{}
	config, err := d.parse()
	if err != nil {
		return nil, err
	}
	share(config)
	if timeout > 0 {
		config.ConnConfig.ConnectTimeout = min(config.ConnConfig.ConnectTimeout, max(timeout/2, time.Second))
	}
	findPrimary(config)
	if e.capabilities, err = probe(ctx, config); err != nil {
		return nil, err
	}
	if _, err := migrate(ctx, config, e.capabilities); err != nil {
		return nil, err
	}
	if err := recordIncarnation(ctx, config, e.capabilities); err != nil {
		return nil, err
	}
	configureServing(config.ConnConfig, e.capabilities, e.jumpRevision, e.reset)
	reading, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	writers := config.Copy()
	writers.MaxConns, writers.MinConns, writers.MinIdleConns = writerConns, 0, 0
	writing, err := pgxpool.NewWithConfig(ctx, writers)
	if err != nil {
		reading.Close()
		return nil, err
	}
	e.pool, e.writer = &conns{Pool: reading}, &conns{Pool: writing}
	e.serves.Store(true)
	e.listener = e.listen(config.Copy(), timeout)
	return e, nil
}

// reset replaces all connections before their next use.
func (e *Engine) reset() {
	if e.serves.Load() {
		e.pool.Reset()
		e.writer.Reset()
	}
}

// OpenReader connects to the database read-only. It fails if the schema is not this binary's.
func OpenReader(ctx context.Context, d Database) (dialect.Reader, error) {
	status, err := Status(ctx, d)
	if err == nil {
		err = status.Usable()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Postgres database: %w", err)
	}
	config, c, err := commandConfig(ctx, d, false)
	if err != nil {
		return nil, withHint(err)
	}
	if !c.pooled {
		// Not a connection parameter: with target_session_attrs=read-write, no host would qualify.
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET default_transaction_read_only = on")
			return err
		}
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &Engine{pool: &conns{Pool: pool}}, nil
}

// Status returns the schema version of the database, without changing it.
func Status(ctx context.Context, d Database) (migrations.Status, error) {
	config, _, err := commandConfig(ctx, d, false)
	if err != nil {
		return migrations.Status{}, withHint(err)
	}
	db := openDB(config)
	defer db.Close()
	status, err := migrations.Read(ctx, db, migrations.Postgres)
	return status, withHint(err)
}

// commandConfig returns how a command connects to the database, to its primary if it writes, and the server's capabilities.
func commandConfig(ctx context.Context, d Database, writes bool) (config *pgxpool.Config, c capabilities, err error) {
	if config, err = d.parse(); err == nil {
		if writes {
			findPrimary(config)
		}
		nameCommand(config)
		c, err = probe(ctx, config)
	}
	return config, c, err
}

// Migrate migrates the schema of the database and returns its previous status.
func Migrate(ctx context.Context, d Database) (before migrations.Status, err error) {
	config, c, err := commandConfig(ctx, d, true)
	if err == nil {
		before, err = migrate(ctx, config, c)
	}
	if err != nil {
		return before, fmt.Errorf("migrating the Postgres database: %w", withHint(err))
	}
	return before, nil
}

func migrate(ctx context.Context, config *pgxpool.Config, c capabilities) (before migrations.Status, err error) {
	// If this machine fails while it has the lock of migrations, the server must end its session: all servers that start wait for
	// the lock.
	config = config.Copy()
	configureServing(config.ConnConfig, c, func(ctx context.Context, conn *pgconn.PgConn) error {
		if c.pooled {
			return nil
		}
		// The session with the lock is idle for as long as a step waits for others, such as pg_dump, in another session.
		return apply(ctx, conn, map[string]string{"idle_in_transaction_session_timeout": "0", "transaction_timeout": "0"})
	}, func() {})
	db := openDB(config)
	defer db.Close()
	if err := db.PingContext(ctx); err != nil {
		return before, err
	}
	return migrations.Up(ctx, db, migrations.Postgres)
}

// Name implements dialect.Engine.
func (e *Engine) Name() string { return "postgres" }

// Contains implements dialect.Engine.
func (e *Engine) Contains(column, parameter string) string {
	return "strpos(" + column + ", " + parameter + ") > 0"
}

// Notifications implements dialect.Engine.
func (e *Engine) Notifications() <-chan int64 {
	if e.listener == nil {
		return nil
	}
	return e.listener.newest
}

// HasFiles implements dialect.Engine.
func (e *Engine) HasFiles() bool { return false }

// InPlace implements dialect.Engine.
func (e *Engine) InPlace(context.Context) error { return nil }

// Skipped implements dialect.Engine.
func (e *Engine) Skipped() dialect.Skips { return nil }

// Close implements dialect.Engine.
func (e *Engine) Close() error {
	if e.cluster != nil {
		return e.cluster.close()
	}
	if e.writer != nil { // nil if opened read-only
		e.listener.close()
		e.writer.Close()
	}
	e.pool.Close()
	return nil
}
