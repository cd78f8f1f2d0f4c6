package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqube/sqube/dialect"
)

// Query implements dialect.Engine. One statement is one snapshot.
//
// After a restart or failover of the server, the pool is full of dead connections. A read that gets one tries the next, unless it
// has already seen a row.
func (e *Engine) Query(ctx context.Context, statement string, args []any, row func(dialect.Row) error) error {
	for tries := 1; ; tries++ {
		seen, err := e.query(ctx, statement, args, row)
		if err == nil || seen || tries > int(e.pool.Stat().MaxConns()) || ctx.Err() != nil || !lost(err) && !serializationFailure(err) {
			return err
		}
	}
}

// Streams implements dialect.Engine: the server sends the whole result.
func (e *Engine) Streams() bool { return false }

// query runs the statement once and reports whether row was called.
func (e *Engine) query(ctx context.Context, statement string, args []any, row func(dialect.Row) error) (seen bool, err error) {
	var refused error // by row
	err = e.pool.rows(ctx, func(rows pgx.Rows) error {
		for rows.Next() {
			seen = true
			if refused = row(rows); refused != nil {
				return refused
			}
		}
		return rows.Err()
	}, numbered(statement), args...)
	if refused != nil {
		return seen, refused
	}
	return seen, failure(ctx, "query", err)
}

// numbered returns a statement whose parameters are written as ? in Postgres' syntax.
func numbered(statement string) string {
	text := &strings.Builder{}
	for n := 1; ; n++ {
		before, after, more := strings.Cut(statement, "?")
		text.WriteString(before)
		if !more {
			return text.String()
		}
		text.WriteString("$" + strconv.Itoa(n))
		statement = after
	}
}

// lost reports whether a connection ended, rather than a server refusing a new one or the statement.
func lost(err error) bool {
	if _, refused := errors.AsType[*pgconn.ConnectError](err); refused {
		return false
	}
	code := codeOf(err)
	return !answered(err) || code == "57P01" || code == "57P02" // the session was ended, the server crashed
}
