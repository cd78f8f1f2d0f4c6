package origin

import (
	"context"
	"errors"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/inspect"
)

// Transfer fills an empty database, of any engine, with all that another has: the log and its history, with the same revisions. It returns the
// newest one. Blocks of history that are damaged are an error.
func Transfer(ctx context.Context, to dialect.Engine, from dialect.Reader) (revision int64, err error) {
	kept, err := inspect.Read(ctx, from)
	if err != nil {
		return 0, err
	}
	var damaged error
	past, replaced := inspect.Past(ctx, from, kept.Revision, func(err error) { damaged = errors.Join(damaged, err) })
	err = to.Load(ctx, kept.Position, func(add func(*dialect.LogRow) error) error {
		if err := inspect.Snapshot(ctx, from, kept.Revision, add); err != nil {
			return err
		}
		return replaced(add)
	}, past)
	return kept.Revision, errors.Join(err, damaged)
}
