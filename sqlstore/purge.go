package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// Erased is what a purge has left.
type Erased = dialect.Erased

// ErrNoHistory is returned by Purge if no version of the object was replaced or deleted.
var ErrNoHistory = errors.New("there is no history of the object")

// Purge removes all versions of an object that have been replaced or deleted, for good. What remains is that this happened, when and by
// whom. Those that have not left the log yet do so within Retention, and are then not kept; until then they can be read. It returns what
// is left in the files of the database.
func (s *Store) Purge(ctx context.Context, resource Resource, key string, by Author) (left Erased, err error) {
	first, until, err := s.history(ctx, resource, key)
	if err != nil {
		return left, err
	}
	if first == nil {
		return left, ErrNoHistory
	}
	signed := &dialect.Write{WrittenAt: time.Now().UnixMilli()}
	by.sign(signed)
	b, err := history.Purged(first, until, signed)
	if err != nil {
		return left, err
	}
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	if err := s.engine.Purge(bounded, b); err != nil {
		return left, err
	}
	return s.erase(ctx)
}

// erase has the engine erase what was purged, and remembers whether that has to be tried again.
func (s *Store) erase(ctx context.Context) (left Erased, err error) {
	left, err = s.engine.Erase(ctx)
	s.unerased.Store(err != nil || left.Again && left.Kept == 0) // what is kept leaves the log by a compaction, which erases
	return left, err
}

// eraseRest erases what a purge, or a process before this one, could not erase.
func (s *Store) eraseRest(ctx context.Context) {
	if _, err := s.erase(ctx); err != nil && ctx.Err() == nil {
		s.opts.Log.Error("what was purged is still in files of the database; trying again", "error", err)
	}
}

// history returns the first version of an object that is no longer current, nil if there is none, and the revision up to which there are
// such versions.
func (s *Store) history(ctx context.Context, resource Resource, key string) (first *dialect.LogRow, until int64, err error) {
	of := func(b *statement) *statement {
		return b.add(" WHERE api_group = " + b.arg(resource.Group) + " AND resource = " + b.arg(resource.Name) + " AND key = " + b.arg(key))
	}
	b := s.statement().add("SELECT first_id AS id, until, namespace, name, '' AS uid FROM past")
	of(b).add(" UNION ALL SELECT id, replaced_by, namespace, name, uid FROM log")
	of(b).add(" AND replaced_by IS NOT NULL ORDER BY id")
	err = s.run(ctx, b, func(row dialect.Row) error {
		r := &dialect.LogRow{Write: dialect.Write{Group: resource.Group, Resource: resource.Name, Key: key}}
		err := row.Scan(&r.ID, &r.ReplacedBy, &r.Namespace, &r.Name, &r.UID)
		until = max(until, r.ReplacedBy)
		if first == nil {
			first = r
		}
		return err
	})
	return first, until, err
}
