package sqlstore

import (
	"context"

	"github.com/sqube/sqube/dialect"
)

// TemporaryChange is replaced by history.Change.
type TemporaryChange struct {
	dialect.LogRow
	Previous []byte
}

// TemporaryChanges is replaced by Changes.
func (s *Store) TemporaryChanges(ctx context.Context, group, resource string, namespace *string, name string, after, before int64, yield func(*TemporaryChange) error) error {
	b := s.statement().add("SELECT (SELECT p.value FROM log p WHERE p.id = log.replaces), " + dialect.Columns + " FROM log WHERE id > 0")
	b.add(" AND id > " + b.arg(after))
	if before > 0 {
		b.add(" AND id < " + b.arg(before))
	}
	if resource != "" {
		b.add(" AND api_group = " + b.arg(group) + " AND resource = " + b.arg(resource))
	}
	if namespace != nil {
		b.add(" AND namespace = " + b.arg(*namespace))
	}
	if name != "" {
		b.add(" AND name = " + b.arg(name))
	}
	b.add(" ORDER BY id DESC")
	var all []*TemporaryChange
	if err := s.run(ctx, b, func(row dialect.Row) error {
		c := &TemporaryChange{}
		all = append(all, c)
		return c.Scan(row, &c.Previous)
	}); err != nil {
		return err
	}
	for _, c := range all {
		if err := yield(c); err != nil {
			return err
		}
	}
	return nil
}
