package history

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sqube/sqube/dialect"
)

// From is the SQL expression, of the table counter, of the revision from which on all versions are kept.
const From = "CASE WHEN packed < compacted THEN compacted ELSE history_from END"

// Since is the SQL expression, of the table counter, of the time of that revision in Unix milliseconds; 0 if nothing was written.
const Since = `coalesce(CASE WHEN packed >= compacted AND history_from > 0 THEN nullif(history_at, 0) END,
(SELECT first_at FROM past WHERE packed >= compacted ORDER BY first_id LIMIT 1),
(SELECT log.written_at FROM log WHERE id >= ` + From + ` ORDER BY id LIMIT 1), written_at)`

// At returns the version of a block that was current at a revision, nil if there was none.
func At(b *dialect.Block, revision int64) (*dialect.LogRow, error) {
	found, err := rows(b)
	if err != nil {
		return nil, err
	}
	n := len(found)
	for n > 0 && found[n-1].ID > revision {
		n--
	}
	if n == 0 || found[n-1].Operation == dialect.Delete || found[n-1].Operation == dialect.Purge {
		return nil, nil
	}
	return found[n-1], fill(b, found[n-1:n], n-1, len(found))
}

// Versions returns the versions of a block, the oldest first.
func Versions(b *dialect.Block) ([]*dialect.LogRow, error) {
	found, err := rows(b)
	if err == nil {
		err = fill(b, found, 0, len(found))
	}
	return found, err
}

// fill reads what is in the data of a block into some of all its rows, of which the first is number from. It returns ErrForgotten if the log
// lacks what they are differences from.
func fill(b *dialect.Block, some []*dialect.LogRow, from, all int) error {
	err := texts(b, all, func(i int, text []byte) (bool, error) {
		if i >= from+len(some) {
			return true, nil
		}
		return i > from, setText(some[i-from], text)
	})
	if err != nil && !errors.Is(err, ErrForgotten) {
		return fmt.Errorf("the block of %s %s from revision %d: %w: %w", b.Resource, b.Key, b.First, dialect.ErrCorrupt, err)
	}
	return err
}

var (
	// ErrForgotten is returned for a version that is no longer kept.
	ErrForgotten = errors.New("the version is no longer kept")
	// ErrGivenUp is the ErrForgotten of a version of which who wrote it, when, and which fields it changed are still kept.
	ErrGivenUp = fmt.Errorf("%w: its values were given up for room", ErrForgotten)
)

// Blocks calls yield with the blocks that a condition with arguments selects, in an order. Columns that
// the log has too are to be written with the name of the table.
func Blocks(ctx context.Context, r dialect.Reader, condition, order string, args []any, yield func(*dialect.Block) error) error {
	return r.Query(ctx, dialect.SelectBlocks+"WHERE "+condition+" ORDER BY "+order, args, func(row dialect.Row) error {
		b := &dialect.Block{}
		if err := b.Scan(row); err != nil {
			return err
		}
		return yield(b)
	})
}

// Written is a revision and when it was written, in Unix milliseconds.
type Written struct{ Revision, At int64 }

// Around returns, of the versions that have left the log, the newest one written at a moment or before, and the oldest one written after
// it. They are zero if there is none.
func Around(ctx context.Context, r dialect.Reader, moment int64) (before, after Written, err error) {
	note := func(id, at int64) {
		switch {
		case at <= moment && id > before.Revision:
			before = Written{id, at}
		case at > moment && (after.Revision == 0 || id < after.Revision):
			after = Written{id, at}
		}
	}
	err = r.Query(ctx, `SELECT until, until_at FROM past WHERE until = (SELECT max(until) FROM past WHERE until_at <= ?)
UNION ALL SELECT first_id, first_at FROM past WHERE first_id = (SELECT min(first_id) FROM past WHERE first_at > ?)`, []any{moment, moment}, func(row dialect.Row) error {
		var id, at int64
		err := row.Scan(&id, &at)
		note(id, at)
		return err
	})
	if err != nil {
		return before, after, err
	}
	const statement = "SELECT first_id, first_at, writers, versions FROM past WHERE first_at <= ? AND until_at > ?"
	err = r.Query(ctx, statement, []any{moment, moment}, func(row dialect.Row) error {
		var b dialect.Block
		if err := row.Scan(&b.First, &b.FirstAt, &b.Writers, &b.Versions); err != nil {
			return err
		}
		found, err := rows(&b)
		for _, version := range found {
			note(version.ID, version.WrittenAt)
		}
		return err
	})
	return before, after, err
}

// EachOf calls yield with the versions of an object that have left the log before a revision, the newest first, without what their blocks
// have compressed.
func EachOf(ctx context.Context, r dialect.Reader, resource Resource, key string, before int64, yield func(*dialect.LogRow) error) error {
	const statement = `SELECT first_id, until, first_at, writers, versions FROM past
WHERE api_group = ? AND resource = ? AND key = ? AND first_id < ? ORDER BY until DESC`
	return r.Query(ctx, statement, []any{resource.Group, resource.Name, key, before}, func(row dialect.Row) error {
		b := dialect.Block{Group: resource.Group, Resource: resource.Name, Key: key}
		if err := row.Scan(&b.First, &b.Until, &b.FirstAt, &b.Writers, &b.Versions); err != nil {
			return err
		}
		found, err := rows(&b)
		if err != nil {
			return nil // it has none, or sqube check finds it
		}
		for _, version := range slices.Backward(found) {
			if version.ID >= before {
				continue
			}
			if err := yield(version); err != nil {
				return err
			}
		}
		return nil
	})
}
