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
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/migrations"
)

// Engine is a dialect.Engine on one Postgres database.
type Engine struct {
	pool *pgxpool.Pool
	// writer has one connection for commits and one for compaction, so that neither waits for reads.
	writer   *pgxpool.Pool
	serves   atomic.Bool // both pools are open
	listener *listener

	compacting compacting
	shrinking  shrinking
	unnotified unnotified

	capabilities capabilities
	seen         dialect.Newest // the newest revision that this process has seen committed
}

var _ dialect.Engine = (*Engine)(nil)

// connectTimeout limits one attempt to connect, unless the DSN sets connect_timeout.
const connectTimeout = 5 * time.Second

// maxConns limits the connections for reads, unless the DSN sets pool_max_conns. There are two more for writes, one for
// notifications, and at times one for vacuum.
const (
	maxConns    = 16
	writerConns = 2
)

// Open connects to the database at dsn ("postgres://…", as libpq and pgx understand it) and migrates its schema. If several
// replicas start together, one migrates.
func Open(ctx context.Context, dsn string) (*Engine, error) { return OpenWithin(ctx, dsn, 0) }

// OpenWithin is Open for a server whose requests wait no longer than timeout for the database; 0 means no limit. It gives up
// earlier on whatever could block them for longer, such as an unresponsive host or a client that died during a commit.
func OpenWithin(ctx context.Context, dsn string, timeout time.Duration) (*Engine, error) {
	e, err := open(ctx, dsn, timeout)
	if err != nil {
		return nil, fmt.Errorf("opening the Postgres database: %w", withHint(err))
	}
	return e, nil
}

func open(ctx context.Context, dsn string, timeout time.Duration) (_ *Engine, err error) {
	e := &Engine{}
	config, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	if timeout > 0 {
		config.ConnConfig.ConnectTimeout = min(config.ConnConfig.ConnectTimeout, max(timeout/2, time.Second))
	}
	findPrimary(config.ConnConfig)
	if e.capabilities, err = probe(ctx, config.ConnConfig); err != nil {
		return nil, err
	}
	if _, err := migrate(ctx, config.ConnConfig, e.capabilities); err != nil {
		return nil, err
	}
	if err := recordIncarnation(ctx, config.ConnConfig, e.capabilities); err != nil {
		return nil, err
	}
	configureServing(config.ConnConfig, e.capabilities, e.jumpRevision, e.reset)
	if e.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	writing := config.Copy()
	writing.MaxConns, writing.MinConns, writing.MinIdleConns = writerConns, 0, 0
	if e.writer, err = pgxpool.NewWithConfig(ctx, writing); err != nil {
		e.pool.Close()
		return nil, err
	}
	e.serves.Store(true)
	e.listener = e.listen(config.ConnConfig.Copy(), timeout)
	return e, nil
}

// reset replaces all connections before their next use.
func (e *Engine) reset() {
	if e.serves.Load() {
		e.pool.Reset()
		e.writer.Reset()
	}
}

// OpenReader connects to the database at dsn read-only. It fails if the schema is not this binary's.
func OpenReader(ctx context.Context, dsn string) (dialect.Reader, error) {
	status, err := Status(ctx, dsn)
	if err == nil {
		err = status.Usable()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the Postgres database: %w", err)
	}
	config, c, err := commandConfig(ctx, dsn, false)
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
	return &Engine{pool: pool}, nil
}

// Status returns the schema version of the database, without changing it.
func Status(ctx context.Context, dsn string) (migrations.Status, error) {
	config, _, err := commandConfig(ctx, dsn, false)
	if err != nil {
		return migrations.Status{}, withHint(err)
	}
	db := stdlib.OpenDB(*config.ConnConfig)
	defer db.Close()
	status, err := migrations.Read(ctx, db, migrations.Postgres)
	return status, withHint(err)
}

// commandConfig returns how a command connects to the database at dsn, to its primary if it writes, and the server's
// capabilities.
func commandConfig(ctx context.Context, dsn string, writes bool) (config *pgxpool.Config, c capabilities, err error) {
	if config, err = parse(dsn); err == nil {
		if writes {
			findPrimary(config.ConnConfig)
		}
		nameCommand(config.ConnConfig)
		c, err = probe(ctx, config.ConnConfig)
	}
	return config, c, err
}

// findPrimary makes connections go to the host that accepts writes. A standby or former primary would return stale state.
func findPrimary(config *pgx.ConnConfig) {
	config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
}

func parse(dsn string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		// The parser's error masks the password, but repeats a DSN that it could not parse, which may contain it.
		return nil, errors.New("the DSN is not valid: want postgres://user:password@host:port/database?sslmode=…, with / in the password as %2F")
	}
	if !strings.Contains(dsn, "pool_max_conns") {
		config.MaxConns = maxConns
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	dialer := &net.Dialer{KeepAliveConfig: keepAlive}
	config.ConnConfig.DialFunc = dialer.DialContext
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "sqube"
	}
	return config, nil
}

// nameCommand gives the sessions of a command a name that differs from a server's, and returns the server's.
func nameCommand(config *pgx.ConnConfig) (server string) {
	server = config.RuntimeParams["application_name"]
	config.RuntimeParams["application_name"] = server + "-command"
	return server
}

// Migrate migrates the schema of the database and returns its previous status.
func Migrate(ctx context.Context, dsn string) (before migrations.Status, err error) {
	config, c, err := commandConfig(ctx, dsn, true)
	if err == nil {
		before, err = migrate(ctx, config.ConnConfig, c)
	}
	if err != nil {
		return before, fmt.Errorf("migrating the Postgres database: %w", withHint(err))
	}
	return before, nil
}

func migrate(ctx context.Context, config *pgx.ConnConfig, c capabilities) (before migrations.Status, err error) {
	// If this machine fails while it has the lock of migrations, the server must end its session: all servers that start wait for
	// the lock.
	config = config.Copy()
	configureServing(config, c, func(ctx context.Context, conn *pgconn.PgConn) error {
		if c.pooled {
			return nil
		}
		// The session with the lock is idle for as long as a step waits for others, such as pg_dump, in another session.
		return apply(ctx, conn, map[string]string{"idle_in_transaction_session_timeout": "0", "transaction_timeout": "0"})
	}, func() {})
	db := stdlib.OpenDB(*config)
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
func (e *Engine) Notifications() <-chan int64 { return e.listener.newest }

// HasFiles implements dialect.Engine.
func (e *Engine) HasFiles() bool { return false }

// InPlace implements dialect.Engine.
func (e *Engine) InPlace(context.Context) error { return nil }

// Skipped implements dialect.Engine.
func (e *Engine) Skipped() dialect.Skipped { return dialect.Skipped{} }

// Close implements dialect.Engine.
func (e *Engine) Close() error {
	if e.writer != nil { // nil if opened read-only
		e.listener.close()
		e.writer.Close()
	}
	e.pool.Close()
	return nil
}
