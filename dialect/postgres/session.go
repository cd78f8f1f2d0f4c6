package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// keepAlive detects a dead idle connection within seconds, so that no later statement waits on it.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// unnamed is the query mode without named statements, which a pooler's other sessions would not have.
const unnamed = pgx.QueryExecModeCacheDescribe

// settings are the settings of a session. If this process, its machine or the network fails, the server soon ends the session and
// releases its locks. There is no statement timeout: each statement has a context, and a vacuum may take long.
var settings = map[string]string{
	"tcp_keepalives_idle":                 "5",
	"tcp_keepalives_interval":             "2",
	"tcp_keepalives_count":                "3",
	"tcp_user_timeout":                    "11000",
	"client_connection_check_interval":    "5000",
	"idle_in_transaction_session_timeout": "300000", // see endStuckSessions for what can't wait that long
	synchronous:                           "on",
}

// synchronous is the setting that says whether a commit is on disk when it is acknowledged. All its values except "off" ensure that,
// and say which standbys must have it too. So it is changed only if it is off for the database, the user or the server.
const synchronous = "synchronous_commit"

// flush is an expression that has the transaction on disk when its commit is acknowledged.
const flush = `CASE current_setting('` + synchronous + `') WHEN 'off' THEN set_config('` + synchronous + `', 'on', true) END`

// apply sets those settings that the server has. It may reject them.
func apply(ctx context.Context, conn *pgconn.PgConn, set map[string]string) error {
	if len(set) == 0 {
		return nil
	}
	var rows []string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		rows = append(rows, fmt.Sprintf("('%s', '%s')", name, set[name]))
	}
	_, err := conn.Exec(ctx, "SELECT set_config(s.name, s.value, false) FROM (VALUES "+strings.Join(rows, ", ")+") AS s(name, value) JOIN pg_settings AS p USING (name) WHERE s.name <> '"+synchronous+"' OR p.setting = 'off'").ReadAll()
	if answered(err) {
		return nil
	}
	return err
}

// capabilities are what the server at a DSN can do: engines that speak Postgres' protocol may lack some.
type capabilities struct {
	// pooled is set if there is a pooler: the next statement may run in another session.
	pooled bool
	// incarnation is the expression for the incarnation of the server, or the counter's own column if the server has none.
	incarnation string
	// database is the expression for the OIDs of the database and of the counter's table, or the counter's own column.
	database string
	// replan is an expression that has the other statements of the transaction planned for the table's current size, or that does
	// nothing. Without it, Postgres would keep a plan from when the table was small, which scans all of it, until the table is
	// analyzed.
	replan string
	// flush is an expression that has the transaction on disk when its commit is acknowledged, or that does nothing: then the DSN
	// says how durable commits are, or the server has no such setting.
	flush string
	// notifies is set if the server has NOTIFY.
	notifies bool
}

// Expressions that a server may support.
const (
	// timeline is the system identifier and the server's timeline.
	timeline      = `(SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) FROM pg_control_system())`
	oids          = `((SELECT oid FROM pg_database WHERE datname = current_database())::text || '/' || coalesce(to_regclass('counter')::oid::text, ''))`
	forceCustom   = `set_config('plan_cache_mode', 'force_custom_plan', true)`
	notifyUnheard = `pg_notify('` + channel + `_nobody', '')`
	process       = `pg_backend_pid()`
)

// probe determines the capabilities of the server, with statements that any pooler accepts, and makes config use only these.
func probe(ctx context.Context, config *pgxpool.Config) (c capabilities, err error) {
	conn, err := dial(ctx, config)
	if err != nil {
		return c, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	// Others lack characters. SQL_ASCII stores whatever it gets.
	if encoding := conn.PgConn().ParameterStatus("server_encoding"); encoding != "UTF8" && encoding != "SQL_ASCII" && encoding != "" {
		return c, fmt.Errorf("the database's encoding is %s: create it with ENCODING 'UTF8'", encoding)
	}
	// supports reports whether the server can evaluate an expression.
	supports := func(expression string) bool {
		_, refusal := conn.Exec(ctx, "SELECT "+expression)
		if !answered(refusal) {
			err = errors.Join(err, refusal)
		}
		return refusal == nil
	}
	choose := func(expression, otherwise string) string {
		if supports(expression) {
			return expression
		}
		return otherwise
	}
	c = capabilities{incarnation: choose(timeline, "incarnation"), database: choose(oids, "database"), replan: choose(forceCustom, "''"), flush: "''", notifies: supports(notifyUnheard)}
	if !durabilityGiven(config.ConnConfig) {
		c.flush = choose(flush, "''")
	}
	// A pooler sends its clients its own process ID.
	var id uint32
	if supports(process) {
		err = errors.Join(err, conn.QueryRow(ctx, "SELECT "+process, pgx.QueryExecModeExec).Scan(&id))
	}
	c.pooled = id != conn.PgConn().PID()
	if c.pooled && config.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement { // pgx's default
		config.ConnConfig.DefaultQueryExecMode = unnamed
	}
	return c, err
}

// durabilityGiven reports whether the DSN says how durable commits are.
func durabilityGiven(config *pgx.ConnConfig) bool {
	_, given := config.RuntimeParams[synchronous]
	return given
}

// readOnly is the error code of a server that accepts no writes: a standby, or a former primary.
const readOnly = "25006"

// configureServing makes config that of connections that serve a log: to a server that accepts writes, in sessions that end with
// their client. onConnect is called for each new connection, onReadOnly when a server reports that it no longer accepts writes.
func configureServing(config *pgx.ConnConfig, c capabilities, onConnect pgconn.AfterConnectFunc, onReadOnly func()) {
	set := map[string]string{}
	if !c.pooled { // with a pooler, they would soon apply to another client
		maps.Copy(set, settings)
	}
	for name := range config.RuntimeParams {
		delete(set, name) // those in the DSN win
	}
	timeout := config.ConnectTimeout
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		// pgx's own timeout is over, and a pool connects without one: a connection that hangs would keep its place for long.
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		if err := apply(ctx, conn, set); err != nil {
			return err
		}
		return onConnect(ctx, conn)
	}
	fatal := config.OnPgError
	config.OnPgError = func(conn *pgconn.PgConn, answer *pgconn.PgError) bool {
		if answer.Code == readOnly {
			onReadOnly()
			return false
		}
		return fatal(conn, answer)
	}
}
