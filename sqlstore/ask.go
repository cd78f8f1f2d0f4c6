package sqlstore

import (
	"context"
	"errors"

	"github.com/sqube/sqube/dialect"
)

// StatementError says what is wrong with a statement for Ask.
type StatementError struct{ error }

// Unwrap returns the cause.
func (e *StatementError) Unwrap() error { return e.error }

// ErrLongRow is the cause if a row is too long; those before it have been read.
var ErrLongRow = dialect.ErrLongRow

// Ask runs one statement in SQL that may only read; see dialect.Engine. ctx must have a deadline. Heartbeats that are held may be missing.
func (s *Store) Ask(ctx context.Context, statement string, columns func([]string), row func([]any) error) error {
	err := s.engine.Ask(ctx, statement, columns, row)
	if cause, ok := errors.AsType[*dialect.Error](err); ok && !errors.Is(err, dialect.ErrUnavailable) && !errors.Is(err, dialect.ErrCorrupt) {
		return &StatementError{cause.Err}
	}
	return err
}
