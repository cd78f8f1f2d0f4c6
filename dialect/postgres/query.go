package postgres

import (
	"context"

	"github.com/sqube/sqube/dialect"
)

// Query implements dialect.Engine. One statement is one snapshot.
func (e *Engine) Query(ctx context.Context, statement string, args []any, row func(dialect.Row) error) error {
	rows, err := e.pool.Query(ctx, statement, args...)
	if err != nil {
		return failure(ctx, "query", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return failure(ctx, "query", err)
	}
	return nil
}
