package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// conns runs statements about one log. The log of a cluster shares its connections with those of other clusters, and a pooler can give
// each transaction another session. So each statement names the log's schema in its own transaction, in the same round trip: no statement
// can find the tables of another log.
type conns struct {
	*pgxpool.Pool
	schema string // of a cluster's log; "" for the log that the session finds by the DSN's settings
	// places limits how many connections one cluster has at once; nil for no limit.
	places chan struct{}
}

// nameSchema names the schema for the rest of a transaction.
const nameSchema = "SELECT set_config('search_path', $1, true)"

// enter waits for a place, which leave returns.
func (c *conns) enter(ctx context.Context) (leave func(), err error) {
	if c.places == nil {
		return func() {}, nil
	}
	select {
	case c.places <- struct{}{}:
		return func() { <-c.places }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// send sends a batch in one transaction, and calls the functions of its statements.
func (c *conns) send(ctx context.Context, batch *pgx.Batch) error {
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if c.schema != "" {
		first := &pgx.Batch{}
		first.Queue(nameSchema, c.schema)
		batch.QueuedQueries = append(first.QueuedQueries, batch.QueuedQueries...)
	}
	return c.SendBatch(ctx, batch).Close()
}

// rows runs one statement, and calls read with its result.
func (c *conns) rows(ctx context.Context, read func(pgx.Rows) error, statement string, args ...any) error {
	if c.schema != "" {
		batch := &pgx.Batch{}
		batch.Queue(statement, args...).Query(read)
		return c.send(ctx, batch)
	}
	rows, err := c.Query(ctx, statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if err := read(rows); err != nil {
		return err
	}
	rows.Close()
	return rows.Err()
}

// row runs one statement, and scans the only row of its result.
func (c *conns) row(ctx context.Context, statement string, args []any, columns ...any) error {
	return c.rows(ctx, func(rows pgx.Rows) error {
		if !rows.Next() {
			if err := rows.Err(); err != nil {
				return err
			}
			return pgx.ErrNoRows
		}
		return rows.Scan(columns...)
	}, statement, args...)
}

// exec runs one statement without a result.
func (c *conns) exec(ctx context.Context, statement string, args ...any) error {
	if c.schema == "" {
		_, err := c.Exec(ctx, statement, args...)
		return err
	}
	batch := &pgx.Batch{}
	batch.Queue(statement, args...)
	return c.send(ctx, batch)
}

// transaction runs do in a transaction.
func (c *conns) transaction(ctx context.Context, do func(pgx.Tx) error) error {
	leave, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	options := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	if c.schema != "" {
		options.BeginQuery = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL search_path = " + c.schema
	}
	return pgx.BeginTxFunc(ctx, c, options, do)
}
