package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqube/sqube/dialect"
)

// failure classifies a database error, unless it is nil. The error of ctx is returned unchanged; a connection that could not be made in time is
// unavailable.
func failure(ctx context.Context, op string, err error) error {
	if err == nil || ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return err
	}
	class := dialect.ErrUnavailable
	if refusedLogin(err) {
		err = withHint(err) // the password may have changed
	}
	switch code := codeOf(err); {
	case code == "53100": // disk full
		class = dialect.ErrFull
	case code == "XX001", code == "XX002", code == "42P01", errors.Is(err, pgx.ErrNoRows):
		class = dialect.ErrCorrupt // damaged data, damaged index, no such table, no row of the counter
	case strings.HasPrefix(code, "22"), strings.HasPrefix(code, "23"), strings.HasPrefix(code, "42"), strings.HasPrefix(code, "54"):
		// A value or statement is invalid or too large.
		return &dialect.Error{Op: op, Engine: "postgres", Err: err}
	}
	return &dialect.Error{Op: op, Engine: "postgres", Err: fmt.Errorf("%w: %w", class, err)}
}

// codeOf returns the code with which a server rejected a statement, or "" if err is something else.
func codeOf(err error) string {
	if answer, ok := errors.AsType[*pgconn.PgError](err); ok {
		return answer.Code
	}
	return ""
}

// answered reports whether the server rejected the statement, as opposed to a failed connection.
func answered(err error) bool {
	_, ok := errors.AsType[*pgconn.PgError](err)
	return ok
}

// refusedLogin reports whether the server did not accept the user or the password.
func refusedLogin(err error) bool {
	code := codeOf(err)
	return code == "28P01" || code == "28000"
}

// serializationFailure reports whether a transaction was rolled back because of concurrent ones and can be retried. This happens
// only on compatible engines that isolate transactions without waiting, not on Postgres.
func serializationFailure(err error) bool {
	code := codeOf(err)
	return code == "40001" || code == "40P01"
}

// rolledBack reports whether the server rolled back the transaction and kept the session. One that ends a session may do so after the
// commit.
func rolledBack(err error) bool {
	answer, ok := errors.AsType[*pgconn.PgError](err)
	return ok && answer.SeverityUnlocalized == "ERROR"
}

// unsupported reports whether a server that speaks Postgres' protocol, but is another engine, lacks what a statement needs.
func unsupported(err error) bool {
	code := codeOf(err)
	return errors.Is(err, errPooled) || code == "0A000" || strings.HasPrefix(code, "42")
}

// notifyHint adds advice to an error of NOTIFY.
func notifyHint(err error) error {
	if codeOf(err) == "54000" { // its queue, which all databases of the server share, is full
		return fmt.Errorf("%w: find the session that listens in a long transaction (SELECT pid, datname, usename, xact_start FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%' ORDER BY xact_start) and end it (SELECT pg_terminate_backend(pid))", err)
	}
	return err
}

// withHint adds advice to an error from opening a database.
func withHint(err error) error {
	var unreachable *pgconn.ConnectError
	switch {
	case answered(err):
		switch codeOf(err) {
		case "28P01", "28000":
			return fmt.Errorf("%w: check the user and the password in the DSN, or in PGPASSWORD or PGPASSFILE, and the server's pg_hba.conf; "+
				"a password file and --datastore-password-command are read for each new connection, but a new DSN or PGPASSWORD needs a restart", err)
		case "3D000": // no such database
			return fmt.Errorf("%w: create it first, or name another in the DSN", err)
		case "42501": // privileges are missing
			return fmt.Errorf("%w: make this user the owner of the database", err)
		case "53300": // too many connections
			return fmt.Errorf("%w: raise max_connections of the server, or lower pool_max_conns in the DSN", err)
		}
	case errors.Is(err, pgconn.ErrReadOnlyConnection):
		return fmt.Errorf("%w: it is a standby, or read-only for another reason; name the primary in the DSN, or all hosts, separated by commas", err)
	case errors.As(err, &unreachable):
		return fmt.Errorf("%w: is Postgres running there, and does the DSN name the right host, port and sslmode?", err)
	}
	return err
}
