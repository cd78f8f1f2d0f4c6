// Package history reads the changes of a log.
package history

import (
	"context"
	"fmt"
	"strings"

	"github.com/sqube/sqube/dialect"
)

// Resource names a collection of objects.
type Resource struct{ Group, Name string }

// Query selects changes. The zero value selects all.
type Query struct {
	Resource  *Resource // nil for any
	Namespace *string   // nil for any; "" for objects without one
	Name      string    // "" for any
	// Only revisions between After and Before, without these; 0 for no bound.
	After, Before int64
	NewestFirst   bool
}

// Change is one write: the row it made, and what was there before.
type Change struct {
	dialect.LogRow        // Value is nil for a deletion
	Previous       []byte // the stored value before; nil if there was none or it is no longer kept
}

// One read of the log has at most pageRows rows of at most maxSpan revisions, so that it is short whatever else the log has.
const (
	pageRows = 200
	maxSpan  = 5000
)

// Changes calls yield with the changes of q in order of their revisions. It returns database errors, and an error from yield, which
// ends it.
func Changes(ctx context.Context, r dialect.Reader, q Query, yield func(*Change) error) error {
	first, last, err := bounds(ctx, r, q)
	if err != nil {
		return err
	}
	for first <= last {
		from, to := first, min(last, first+maxSpan-1)
		if q.NewestFirst {
			from, to = max(first, last-maxSpan+1), last
		}
		page, err := read(ctx, r, q, from, to)
		if err != nil {
			return err
		}
		for _, c := range page {
			if err := yield(c); err != nil {
				return err
			}
		}
		end := len(page) == pageRows
		switch {
		case q.NewestFirst && end:
			last = page[len(page)-1].ID - 1
		case q.NewestFirst:
			last = from - 1
		case end:
			first = page[len(page)-1].ID + 1
		default:
			first = to + 1
		}
	}
	return nil
}

// bounds returns the first and the last revision of the log that q may select.
func bounds(ctx context.Context, r dialect.Reader, q Query) (first, last int64, err error) {
	err = r.Query(ctx, "SELECT coalesce(min(id), 1), coalesce(max(id), 0) FROM log", nil, func(row dialect.Row) error { return row.Scan(&first, &last) })
	first = max(first, q.After+1)
	if q.Before != 0 {
		last = min(last, q.Before-1)
	}
	return first, last, err
}

func read(ctx context.Context, r dialect.Reader, q Query, from, to int64) (page []*Change, err error) {
	var args []any
	arg := func(value any) string {
		args = append(args, value)
		return r.Placeholder(len(args))
	}
	where := []string{"id >= " + arg(from), "id <= " + arg(to)}
	if q.Resource != nil {
		where = append(where, "api_group = "+arg(q.Resource.Group), "resource = "+arg(q.Resource.Name))
	}
	if q.Namespace != nil {
		where = append(where, "namespace = "+arg(*q.Namespace))
	}
	if q.Name != "" {
		where = append(where, "name = "+arg(q.Name))
	}
	order := ""
	if q.NewestFirst {
		order = " DESC"
	}
	statement := fmt.Sprintf("SELECT (SELECT p.value FROM log p WHERE p.id = log.replaces), %s FROM log WHERE %s ORDER BY id%s LIMIT %d",
		dialect.Columns, strings.Join(where, " AND "), order, pageRows)
	err = r.Query(ctx, statement, args, func(row dialect.Row) error {
		c := &Change{}
		page = append(page, c)
		return c.Scan(row, &c.Previous)
	})
	return page, err
}
