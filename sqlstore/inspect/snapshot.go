package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// Kept is what can be read from a log: its state at each revision from From to Revision, and at each moment from Earliest on.
type Kept struct {
	dialect.Position
	From             int64
	Earliest, Newest time.Time // when From and Revision were written; the zero time if nothing was
	// Packed is roughly how many bytes the versions take that have left the log.
	Packed int64
}

// Read returns what is kept.
func Read(ctx context.Context, r dialect.Reader) (k Kept, err error) {
	var earliest, newest int64
	const statement = `SELECT revision, compacted, ` + history.From + `, written_at, (SELECT coalesce(sum(bytes), 0) FROM past), ` + history.Since + ` FROM counter`
	err = r.Query(ctx, statement, nil, func(row dialect.Row) error {
		return row.Scan(&k.Revision, &k.Compacted, &k.From, &newest, &k.Packed, &earliest)
	})
	if newest > 0 {
		k.Earliest, k.Newest = time.UnixMilli(earliest), time.UnixMilli(newest)
	}
	return k, err
}

// Snapshot calls yield with the rows that were live at a revision, as they were then: first those of the log, ordered by id, then those that
// have left it. It returns an error that wraps ErrForgotten for a revision that is no longer kept, database errors, and an error from yield,
// which ends the walk.
func Snapshot(ctx context.Context, r dialect.Reader, revision int64, yield func(*dialect.LogRow) error) error {
	const live = "WHERE operation <> 'delete' AND id <= ? AND (replaced_by IS NULL OR replaced_by > ?) ORDER BY id"
	leaving := map[int64]bool{} // what may be in history too by the time that it is read
	err := dialect.Rows(ctx, r, live, []any{revision, revision}, func(l *dialect.LogRow) error {
		if l.ReplacedBy != 0 {
			leaving[l.ID] = true
		}
		l.ReplacedBy = 0 // not yet, at that revision
		return yield(l)
	})
	if err == nil {
		err = history.Blocks(ctx, r, "first_id <= ? AND until > ?", "first_id", []any{revision, revision}, func(b *dialect.Block) error {
			l, err := history.At(b, revision)
			if err != nil || l == nil || leaving[l.ID] {
				return err
			}
			l.ReplacedBy = 0
			return yield(l)
		})
	}
	if errors.Is(err, history.ErrGivenUp) {
		err = fmt.Errorf("%w: values of that moment were given up for room", ErrForgotten)
	} else if err != nil && !errors.Is(err, history.ErrForgotten) {
		return err
	}
	return cmp.Or(readable(ctx, r, revision), err, complete(ctx, r, revision, "")) // versions may have been removed meanwhile, which is declared first
}

// Whole returns nil if the state at a revision can be read as a whole, and otherwise an error that wraps ErrForgotten, or one of the database.
func Whole(ctx context.Context, r dialect.Reader, revision int64) error {
	return cmp.Or(readable(ctx, r, revision), complete(ctx, r, revision, ""))
}

// Past returns the history of a log up to a revision, for dialect.Engine.Load, and a function that calls yield with the rows of the log that
// were replaced by then. It calls damaged for each block that can be carried over only in part.
func Past(ctx context.Context, r dialect.Reader, revision int64, damaged func(error)) (past *dialect.Past, replaced func(yield func(*dialect.LogRow) error) error) {
	past = &dialect.Past{UpTo: revision}
	past.Blocks = func(add func(*dialect.Block) error) error {
		err := history.Blocks(ctx, r, "first_id <= ?", "first_id", []any{revision}, func(stored *dialect.Block) error {
			blocks, err := history.UpTo(stored, revision)
			if err != nil {
				damaged(err)
			}
			for _, b := range blocks {
				if err := add(b); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		kept, err := Read(ctx, r) // some may have been removed meanwhile, which is declared first
		if past.From = kept.From; !kept.Earliest.IsZero() {
			past.At = kept.Earliest.UnixMilli()
		}
		return err
	}
	return past, func(yield func(*dialect.LogRow) error) error {
		return dialect.Rows(ctx, r, "WHERE replaced_by IS NOT NULL AND replaced_by <= ? ORDER BY replaced_by", []any{revision}, yield)
	}
}
