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
)

// keepAlive finds out within seconds that an idle connection leads nowhere,
// so that nobody waits on it later.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// unnamed is the way to ask in which no statement has a name, by which the
// next session of a pooler would not know it.
const unnamed = pgx.QueryExecModeCacheDescribe

// settings are those of a session. Should this process, its machine or the
// network go away, the server ends the session soon, and with it what it does
// and has locked. How long a statement may take is not among them: each has its
// context, and to give room back takes longer than to serve.
var settings = map[string]string{
	"tcp_keepalives_idle":                 "5",
	"tcp_keepalives_interval":             "2",
	"tcp_keepalives_count":                "3",
	"tcp_user_timeout":                    "11000",
	"client_connection_check_interval":    "5000",
	"idle_in_transaction_session_timeout": "300000", // see endStuckSessions for what must not take so long
}

// apply returns the statement that sets those of the settings that the server knows.
func apply(set map[string]string) string {
	var rows []string
	for _, name := range slices.Sorted(maps.Keys(set)) {
		rows = append(rows, fmt.Sprintf("('%s', '%s')", name, set[name]))
	}
	return "SELECT set_config(s.name, s.value, false) FROM (VALUES " + strings.Join(rows, ", ") + ") AS s(name, value) JOIN pg_settings USING (name)"
}

// capabilities is what there is behind a DSN: a server, and whether it has what
// engines that speak Postgres may lack.
type capabilities struct {
	// pooled is set where a pooler stands in between: the next statement may
	// run in another session.
	pooled bool
	// incarnation is the expression for the incarnation of the server, or the
	// counter's own where it has none to tell.
	incarnation string
	// replan is the expression that has the other statements of the
	// transaction planned for the table as it is, or one that does nothing. The
	// plan that Postgres would keep of a statement while the table was small goes
	// over all of it, and stays until somebody analyzes the table.
	replan string
	// notifies is set where a session can tell others of its commits.
	notifies bool
}

// The expressions that a server may know.
const (
	// timeline is the system identifier and the timeline on which the server writes.
	timeline     = `(SELECT system_identifier || '/' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) FROM pg_control_system())`
	forceCustom  = `set_config('plan_cache_mode', 'force_custom_plan', true)`
	notifyNobody = `pg_notify('` + channel + `_nobody', '')`
	process      = `pg_backend_pid()`
)

// probe looks at what there is to connect to, in statements that any pooler takes, and has config take no others.
func probe(ctx context.Context, config *pgx.ConnConfig) (n capabilities, err error) {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return n, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	// knows says whether the server can evaluate an expression.
	knows := func(expression string) bool {
		_, refusal := conn.Exec(ctx, "SELECT "+expression)
		if !answered(refusal) {
			err = errors.Join(err, refusal)
		}
		return refusal == nil
	}
	choose := func(expression, otherwise string) string {
		if knows(expression) {
			return expression
		}
		return otherwise
	}
	n = capabilities{incarnation: choose(timeline, "incarnation"), replan: choose(forceCustom, "''"), notifies: knows(notifyNobody)}
	// A pooler makes up the process that it names to its client.
	var id uint32
	if knows(process) {
		err = errors.Join(err, conn.QueryRow(ctx, "SELECT "+process, pgx.QueryExecModeExec).Scan(&id))
	}
	n.pooled = id != conn.PgConn().PID()
	if n.pooled && config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement { // pgx's default
		config.DefaultQueryExecMode = unnamed
	}
	return n, err
}

// answered says whether err is the server's refusal of a statement, rather than that of a connection.
func answered(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer)
}

// readOnly is the code of the error of a server that takes no writes: a standby, or a primary of the past.
const readOnly = "25006"

// configureServing makes config that of connections which serve a log: to a server that takes writes, in sessions that end with
// their client. greet is called at the beginning of each; moved is called when a server says that it does not take writes
// any more.
func configureServing(config *pgx.ConnConfig, n capabilities, onConnect pgconn.AfterConnectFunc, onReadOnly func()) {
	set := map[string]string{}
	if !n.pooled { // where they would be another client's a moment later
		maps.Copy(set, settings)
	}
	for name := range config.RuntimeParams {
		delete(set, name) // the DSN's own come first
	}
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if len(set) > 0 {
			// A server that refuses them is served all the same.
			if _, err := conn.Exec(ctx, apply(set)).ReadAll(); err != nil && !answered(err) {
				return err
			}
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
