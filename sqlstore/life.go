package sqlstore

import (
	"context"
	"errors"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// Life is what is known of how long the object exists that now has a key.
type Life struct {
	// UID is that of the object, "" if there is none.
	UID string
	// First is the first revision of it that is kept. If Whole is set, it is its creation, other than by ImportAuthor.
	First int64
	Whole bool
	// Former is the last revision known of another object with the key; 0 if none is. It is only set without Whole.
	Former int64
}

// ImportAuthor is who creates objects in the log that have been created elsewhere before.
const ImportAuthor = "system:sqube:import"

// LifeOf returns how long the live object at a key is known to exist.
func (s *Store) LifeOf(ctx context.Context, resource Resource, key string) (l Life, err error) {
	b := s.statement().of("get", resource).add("WITH RECURSIVE version (id, replaces, operation, uid, author) AS (SELECT id, replaces, operation, uid, user_name FROM log WHERE replaced_by IS NULL")
	b.add(" AND api_group = " + b.arg(resource.Group) + " AND resource = " + b.arg(resource.Name) + " AND key = " + b.arg(key))
	b.add(" UNION ALL SELECT l.id, l.replaces, l.operation, l.uid, l.user_name FROM version v JOIN log l ON l.id = v.replaces WHERE v.operation <> 'create')")
	b.add(" SELECT id, operation, uid, author FROM version ORDER BY id LIMIT 1")
	err = s.run(ctx, b, func(row dialect.Row) error {
		var operation, author string
		err := row.Scan(&l.First, &operation, &l.UID, &author)
		l.Whole = dialect.Operation(operation) == dialect.Create && author != ImportAuthor
		return err
	})
	if err != nil || l.UID == "" || l.Whole {
		return l, err
	}
	err = history.EachOf(ctx, settled{s.engine, s}, resource, key, l.First, func(version *dialect.LogRow) error {
		if version.UID != l.UID || version.Operation != dialect.Create && version.Operation != dialect.Update {
			l.Former = version.ID
			return errEnough
		}
		l.First, l.Whole = version.ID, version.Operation == dialect.Create && version.User != ImportAuthor
		if l.Whole {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return l, err
}
