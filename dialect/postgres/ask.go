package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/sqube/sqube/dialect"
)

// askedLock is how long a statement waits for a lock, such as that of a migration.
const askedLock = 2 * time.Second

// foreign selects what a function with the body that is the parameter's uses and must not: relations that are not sqube's, and functions
// that are not Postgres' own or that may do more than to compute something. Postgres marks these as volatile, but for some that
// tell about the server or read tables by name. The body is the statement as Postgres has parsed it, so no spelling hides a name.
//
// A function in a view is the business of who made the view.
const foreign = `SELECT string_agg(DISTINCT used.what, ', ') FROM (
  SELECT format('%s is not one of objects, history, log, past and counter', m[1]::oid::regclass) AS what
  FROM pg_proc AS f, regexp_matches(f.prosqlbody::text, ':relid (\d+)', 'g') AS m
  WHERE f.proname = $1 AND m[1]::oid <> 0 AND m[1]::oid <> ALL (ARRAY['objects'::regclass, 'history'::regclass, 'log'::regclass, 'past'::regclass, 'counter'::regclass]::oid[])
  UNION ALL
  SELECT format('the function %s may not be used', p.proname)
  FROM pg_proc AS f, regexp_matches(f.prosqlbody::text, ':(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)', 'g') AS m, pg_proc AS p
  WHERE f.proname = $1 AND p.oid = m[1]::oid
    AND (p.pronamespace <> 'pg_catalog'::regnamespace OR p.oid >= 16384 OR p.provolatile = 'v' OR p.proname ~ '^pg_|^txid_|_to_xml|_validator$|^current_setting$')
    AND NOT (p.oid < 16384 AND p.proname IN ('random', 'clock_timestamp', 'gen_random_uuid', 'pg_size_pretty', 'pg_typeof', 'pg_column_size'))
) AS used`

// Ask implements dialect.Engine. Postgres parses the statement first, as the body of a function that is rolled back, and it may use only
// what can't do anything but read the log: no role's rights matter, not even a superuser's, and nothing reaches beyond the transaction,
// such as advisory locks, other sessions or files. Then it runs alone, in a read-only transaction of a session of its own, which ends
// with it: so a pooler can't give the session to another client.
func (e *Engine) Ask(ctx context.Context, statement string, columns func([]string), row func([]any) error) error {
	whole, _, query, err := dialect.Asked(statement)
	if err != nil {
		return &dialect.Error{Op: "query", Engine: "postgres", Err: err}
	}
	running, stop := e.running(ctx)
	defer stop()
	end, _, err := e.cluster.wholeSession(running, true)
	if err != nil {
		return askFailure(running, err)
	}
	defer end()
	conn, err := e.askingSession(running)
	if err != nil {
		return failure(ctx, "query", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if err = e.harmless(running, conn, query); err == nil {
		err = e.ask(running, conn.PgConn(), whole, columns, row)
	}
	var refused *refusedRow
	switch {
	case errors.As(err, &refused):
		return refused.error
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return askFailure(running, err)
}

// running returns a context that ends a little after the deadline of ctx, at which the server ends the statement, or with ctx before.
// Through a pooler, it does not end before: PgBouncer 1.18 was gone after some clients had cancelled and closed.
func (e *Engine) running(ctx context.Context) (context.Context, context.CancelFunc) {
	running, stop := context.WithTimeout(context.WithoutCancel(ctx), left(ctx)+grace)
	if !e.capabilities.pooled {
		context.AfterFunc(ctx, func() {
			if errors.Is(ctx.Err(), context.Canceled) {
				stop()
			}
		})
	}
	return running, stop
}

// grace is how much longer than the server this process waits for the end of a statement.
const grace = 2 * time.Second

func left(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return time.Second
	}
	return max(time.Until(deadline), time.Millisecond)
}

// refusedRow is an error of the caller.
type refusedRow struct{ error }

// askingSession opens a session in which the server ends a statement with ctx, and that can't fill the memory with one row.
func (e *Engine) askingSession(ctx context.Context) (*pgx.Conn, error) {
	config := e.pool.Config()
	config.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Second}
	}
	conn, err := dial(ctx, config)
	if err == nil {
		conn.PgConn().Frontend().SetMaxBodyLen(dialect.MaxAskedRow)
	}
	return conn, err
}

// harmless fails unless a statement only reads the log.
func (e *Engine) harmless(ctx context.Context, conn *pgx.Conn, query string) error {
	name := "sqube_asked_" + strings.ToLower(rand.Text())
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, limits(ctx)+e.cluster.local()); err != nil {
		return err
	}
	var nothing [][]byte // so that it is the extended protocol, which takes one statement
	made := conn.PgConn().ExecParams(ctx, "CREATE FUNCTION "+name+"() RETURNS SETOF record BEGIN ATOMIC\n"+query+"\n;END", nothing, nil, nil, nil).Read()
	if made.Err != nil {
		return made.Err
	}
	var found *string
	if err := tx.QueryRow(ctx, foreign, pgx.QueryExecModeExec, name).Scan(&found); err != nil {
		return err
	}
	if found != nil {
		return &dialect.Error{Op: "query", Engine: "postgres", Err: errors.New(*found)}
	}
	return nil
}

// maxAskedTemporary limits the temporary files of a statement, if the role is a superuser: only such may set that.
const maxAskedTemporary = "512MB"

// limits makes the server end a statement a little before ctx, that of running, and run it in one process.
func limits(ctx context.Context) string {
	timeout := max(left(ctx)-grace, time.Millisecond)
	return fmt.Sprintf(`SET LOCAL statement_timeout = %d; SET LOCAL lock_timeout = %d; SET LOCAL TimeZone = 'UTC'; SET LOCAL max_parallel_workers_per_gather = 0;
SELECT set_config('temp_file_limit', '%s', true) WHERE current_setting('is_superuser') = 'on'`, timeout.Milliseconds(), askedLock.Milliseconds(), maxAskedTemporary)
}

// ask runs the statement. It leaves the transaction to the end of the session.
func (e *Engine) ask(ctx context.Context, conn *pgconn.PgConn, statement string, columns func([]string), row func([]any) error) error {
	if _, err := conn.Exec(ctx, "BEGIN TRANSACTION READ ONLY; "+limits(ctx)+e.cluster.local()).ReadAll(); err != nil {
		return err
	}
	result := conn.ExecParams(ctx, statement, nil, nil, nil, nil) // all of the result as text
	var names []string
	for _, f := range result.FieldDescriptions() {
		names = append(names, f.Name)
	}
	columns(names)
	for result.NextRow() {
		values := make([]any, len(names))
		for i, text := range result.Values() {
			values[i] = valueOf(result.FieldDescriptions()[i].DataTypeOID, text)
		}
		if err := row(values); err != nil {
			return &refusedRow{err} // result is left open: the connection closes
		}
	}
	_, err := result.Close()
	return err
}

// valueOf returns a value that the server sent as text.
func valueOf(of uint32, text []byte) any {
	if text == nil {
		return nil
	}
	switch of {
	case pgtype.BoolOID:
		return string(text) == "t"
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.Float4OID, pgtype.Float8OID, pgtype.NumericOID, pgtype.OIDOID:
		if number, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			return number
		}
		if number, err := strconv.ParseFloat(string(text), 64); err == nil && !math.IsNaN(number) && !math.IsInf(number, 0) {
			return number
		}
	case pgtype.ByteaOID:
		if bytes, err := hex.DecodeString(strings.TrimPrefix(string(text), `\x`)); err == nil {
			return bytes
		}
	case pgtype.TimestamptzOID: // as in SQLite
		if at, err := time.Parse("2006-01-02 15:04:05.999999-07", string(text)); err == nil {
			return at.Format("2006-01-02T15:04:05.000Z")
		}
	}
	return string(text)
}

// askFailure classifies an error. Those that the statement is to blame for wrap nothing: see dialect.Reader.
func askFailure(ctx context.Context, err error) error {
	if err == nil || errors.As(err, new(*dialect.Error)) {
		return err
	}
	if errors.As(err, new(*pgproto3.ExceededMaxBodyLenErr)) {
		return &dialect.Error{Op: "query", Engine: "postgres", Err: dialect.ErrLongRow}
	}
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case answer.Code == "57014": // statement_timeout
			return context.DeadlineExceeded
		case answer.Code == "53400":
			return &dialect.Error{Op: "query", Engine: "postgres", Err: fmt.Errorf("the statement takes more temporary files than the server allows: select less at once (%s)", answer.Message)}
		case answer.Code == "55P03", slices.Contains([]string{"08", "53", "57", "58", "XX"}, answer.Code[:2]): // locked; not the statement's fault
		default:
			text := answer.Message
			if answer.Hint != "" {
				text += " (" + answer.Hint + ")"
			}
			return &dialect.Error{Op: "query", Engine: "postgres", Err: errors.New(text)}
		}
	}
	return failure(ctx, "query", err)
}
