package history

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sqube/sqube/dialect"
)

// Live calls yield with the changes that made what exists now, of the resource and in the namespace of q, in order of their revisions. They
// are lazy. If owned is true, it is only those of objects that may have owners, with their values. It returns database errors, and an
// error from yield, which ends it.
func Live(ctx context.Context, r dialect.Reader, q Query, owned bool, yield func(*Change) error) error {
	columns := lazyColumns
	conditions := []string{"replaced_by IS NULL", "id > ?"}
	if owned {
		columns = dialect.Columns
		conditions = append(conditions, "("+r.Contains("value", "?")+" OR value NOT LIKE '{%')") // which is encrypted
	}
	w := &reader{Reader: r, query: q}
	for last, more := int64(0), true; more; {
		args := []any{last}
		if owned {
			args = append(args, `"ownerReferences"`)
		}
		where, args := w.where(true, slices.Clip(conditions), args)
		var page []*Change
		bytes := 0
		err := r.Query(ctx, fmt.Sprintf("SELECT %s FROM log WHERE %s ORDER BY id LIMIT %d", columns, where, pageRows), args, func(row dialect.Row) error {
			c := &Change{from: w, lazy: !owned}
			if err := c.Scan(row); err != nil {
				return err
			}
			page, last = append(page, c), c.ID
			if bytes += len(c.Value); bytes >= pageBytes {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		more = err != nil || len(page) == pageRows
		for _, c := range page {
			if err := yield(c); err != nil {
				return err
			}
		}
	}
	return nil
}
