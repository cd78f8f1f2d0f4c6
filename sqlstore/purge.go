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
	b, err := history.Purged(first, until, &dialect.Write{
		WrittenAt: time.Now().UnixMilli(), User: plain(by.User), FieldManager: plain(by.FieldManager), Address: plain(by.Address), AuditID: plain(by.AuditID),
	})
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
	reader := settled{s.engine, s}
	err = history.Blocks(ctx, reader, "api_group = ? AND resource = ? AND key = ?", "first_id", []any{resource.Group, resource.Name, key}, func(b *dialect.Block) error {
		until = max(until, b.Until)
		if first == nil {
			first = &dialect.LogRow{ID: b.First, Write: dialect.Write{
				Group: b.Group, Resource: b.Resource, Key: b.Key, Namespace: b.Namespace, Name: b.Name, WrittenAt: b.FirstAt}}
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	b := s.statement()
	b.add("SELECT " + dialect.Columns + " FROM log WHERE replaced_by IS NOT NULL AND api_group = " + b.arg(resource.Group) + " AND resource = " + b.arg(resource.Name))
	b.add(" AND key = " + b.arg(key) + " ORDER BY id")
	err = s.run(ctx, b, func(row dialect.Row) error {
		l := &dialect.LogRow{}
		err := l.Scan(row)
		until = max(until, l.ReplacedBy)
		if first == nil {
			first = l
		}
		return err
	})
	return first, until, err
}
