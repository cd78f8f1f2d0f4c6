package sqlstore

import (
	"context"
	"time"

	"github.com/sqube/sqube/dialect"
)

// Still says what a log has that nobody is going to write to for a while.
type Still struct {
	Objects int64     // of the API, that are live
	Expires time.Time // when the next object expires, zero for never
}

// Still returns what the log has.
func (s *Store) Still(ctx context.Context) (found Still, err error) {
	b := s.statement().setApart()
	b.add("SELECT (SELECT count(*) FROM log WHERE replaced_by IS NULL AND api_group <> " + b.arg(InternalGroup) + "),")
	b.add(" (SELECT coalesce(min(expires_at), 0) FROM log WHERE expires_at IS NOT NULL AND replaced_by IS NULL)")
	var expires int64
	err = s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&found.Objects, &expires) })
	if expires > 0 {
		found.Expires = time.UnixMilli(expires)
	}
	return found, err
}
