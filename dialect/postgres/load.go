package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
)

// Load implements dialect.Engine.
func (e *Engine) Load(ctx context.Context, counter dialect.Position, rows func(add func(*dialect.LogRow) error) error) error {
	var refused error // an error that is not the database's
	err := pgx.BeginFunc(ctx, e.writer, func(tx pgx.Tx) error {
		var some bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM log)").Scan(&some); err != nil {
			return err
		}
		if some {
			refused = dialect.ErrNotEmpty
			return refused
		}
		given := feed(ctx, rows)
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"log"}, strings.Split(dialect.Columns, ", "), given)
		if refused = given.stop(); refused != nil {
			return refused
		}
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "UPDATE counter SET revision = $1, compacted = $2", counter.Revision, counter.Compacted)
		return err
	})
	switch {
	case refused != nil:
		return refused
	case err != nil:
		return failure(ctx, "load", err)
	}
	return nil
}

// source turns a function that produces rows into one from which COPY reads them.
type source struct {
	rows   chan *dialect.LogRow
	cancel context.CancelFunc
	err    error // of the producer, once rows is closed
	row    *dialect.LogRow
}

// feed starts the producer.
func feed(ctx context.Context, rows func(add func(*dialect.LogRow) error) error) *source {
	ctx, cancel := context.WithCancel(ctx)
	s := &source{rows: make(chan *dialect.LogRow), cancel: cancel}
	go func() {
		defer close(s.rows)
		err := rows(func(row *dialect.LogRow) error {
			select {
			case s.rows <- row:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if ctx.Err() == nil {
			s.err = err
		}
	}()
	return s
}

// Next implements pgx.CopyFromSource.
func (s *source) Next() (more bool) {
	s.row, more = <-s.rows
	return more
}

// Err implements pgx.CopyFromSource: the copy must fail if the producer does.
func (s *source) Err() error { return s.err }

// stop ends the producer and returns its error, unless it was stopped early.
func (s *source) stop() error {
	s.cancel()
	for range s.rows {
	}
	return s.err
}

// Values implements pgx.CopyFromSource.
func (s *source) Values() ([]any, error) { return s.row.Values(), nil }
