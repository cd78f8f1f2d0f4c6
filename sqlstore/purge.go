package sqlstore

import (
	"context"
	"errors"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// ErrNoHistory is returned by Purge if no version of the object was replaced or deleted.
var ErrNoHistory = errors.New("there is no history of the object")

// Purge removes all versions of an object that have been replaced or deleted, for good. What remains is that this happened, when and by
// whom. Those that have not left the log yet do so within Retention, and are then not kept; until then they can be read.
func (s *Store) Purge(ctx context.Context, resource Resource, key string, by Author) error {
	first, until, err := s.history(ctx, resource, key)
	if err != nil {
		return err
	}
	if first == nil {
		return ErrNoHistory
	}
	signed := &dialect.Write{WrittenAt: time.Now().UnixMilli()}
	by.sign(signed)
	b, err := history.Purged(first, until, signed)
	if err != nil {
		return err
	}
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	return s.engine.Purge(bounded, b)
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
