package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/sqube/sqube/dialect"
)

// Load implements dialect.Engine.
func (e *Engine) Load(ctx context.Context, counter dialect.Position, rows func(add func(*dialect.LogRow) error) error) error {
	var refused error // what is no failure of the database
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

// source turns rows that are handed over, one after the other, into rows that COPY takes when it wants.
type source struct {
	rows   chan *dialect.LogRow
	cancel context.CancelFunc
	err    error // of the giver, once rows is closed
	row    *dialect.LogRow
}

// feed starts to hand over the rows.
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

// Err implements pgx.CopyFromSource: the copy must not end well when the giver failed.
func (s *source) Err() error { return s.err }

// stop ends the giver and returns its error, unless it was stopped before its end.
func (s *source) stop() error {
	s.cancel()
	for range s.rows {
	}
	return s.err
}

// Values implements pgx.CopyFromSource.
func (s *source) Values() ([]any, error) { return s.row.Values(), nil }
