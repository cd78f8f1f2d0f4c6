package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// pastRecords is how many records a page of what was has at most: each may have to be taken from a block of versions.
const pastRecords = 100

// pageOfPast is Page at a revision that is compacted, if history has it: the rows of the log that were current then, with the blocks that
// were. A version moves from one to the other in one transaction, so a statement sees it once. Afterwards it is checked that nothing was
// removed meanwhile.
func (s *Store) pageOfPast(ctx context.Context, q Query) (page Page, err error) {
	q.Limit = min(q.Limit, pastRecords)
	for {
		page, last, err := s.readPast(ctx, q)
		if errors.Is(err, history.ErrForgotten) {
			err = fmt.Errorf("%w: %w", ErrCompacted, err)
		} else if err != nil {
			return page, err
		}
		position, unkept := s.pastKept(ctx, q)
		if page.Position, err = position, cmp.Or(unkept, err); err != nil || len(page.Records) > 0 || !page.More {
			return page, err
		}
		q.After = last
	}
}

// pastKept returns ErrCompacted if the objects of q at its revision are not all in history.
func (s *Store) pastKept(ctx context.Context, q Query) (at dialect.Position, err error) {
	var from int64
	var lost, leftOut bool
	b := s.statement().setApart().add("SELECT revision, compacted, " + history.From + ", " + dialect.WasLost + ", " + history.WasLeftOut + " AND name = ?")
	b.args = []any{q.Revision, q.Revision, q.Revision, q.Revision, q.Resource.String()}
	within := q.Prefix
	if q.Exactly != nil {
		within = *q.Exactly
	}
	if namespace, _, ok := strings.Cut(within, "/"); ok {
		b.add(" AND namespace = " + b.arg(namespace))
	}
	b.add(") FROM counter")
	err = s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&at.Revision, &at.Compacted, &from, &lost, &leftOut) })
	if err == nil && (q.Revision < from || lost || leftOut || s.isLost(q.Resource, q.Revision) || s.engine.Skipped().Has(q.Revision)) {
		err = ErrCompacted
	}
	return at, err
}

// readPast reads a page, and returns the last key that it has looked at.
func (s *Store) readPast(ctx context.Context, q Query) (page Page, last string, err error) {
	seen, size := 0, 0
	err = s.run(ctx, s.statement().of("list", q.Resource).past(q), func(row dialect.Row) error {
		var bytes int
		r := &Record{}
		var id *int64
		var labels, fields *string
		b := dialect.Block{Resource: q.Resource.Name}
		var first, firstAt *int64
		var writers, versions *string
		var next dialect.Next
		if err := row.Scan(next.Columns(&bytes, &r.Key, &id, &labels, &fields, &r.Value, &first, &firstAt, &writers, &versions, &b.Data)...); err != nil {
			return err
		}
		seen, size, last = seen+1, size+bytes, r.Key
		if id != nil {
			r.Revision, r.Labels, r.Fields = *id, *labels, *fields
		} else if first != nil {
			b.Key, b.First, b.FirstAt, b.Writers, b.Versions, b.Next = r.Key, *first, *firstAt, *writers, *versions, next.Row()
			version, err := history.At(&b, q.Revision)
			if err != nil || version == nil {
				return err
			}
			r.Revision, r.Labels, r.Fields, r.Value = version.ID, version.Labels, version.Fields, version.Value
		}
		if passesAll(q.Terms, r) {
			page.Records = append(page.Records, r)
		}
		return nil
	})
	if q.WithoutValues {
		for i, r := range page.Records {
			page.Records[i] = r.bare()
		}
	}
	page.More = seen == q.Limit || size >= q.Bytes
	return page, last, err
}

// past adds the statement that selects what was at the revision of q, without its terms, ordered by key.
func (b *statement) past(q Query) *statement {
	b.add("SELECT " + dialect.NextColumns + `, page.size, page.key, l.id, l.labels, l.fields, l.value, p.first_id, p.first_at, p.writers, p.versions, p.data
FROM (SELECT *, sum(size) OVER (ORDER BY key ROWS UNBOUNDED PRECEDING) - size AS before FROM (`)
	q.Terms = nil
	b.add("SELECT id, NULL AS first_id, key, coalesce(size, 0) AS size FROM (").rows(q, "id, key, octet_length(value) AS size")
	b.add(") AS present UNION ALL SELECT NULL, first_id, key, bytes + coalesce((SELECT octet_length(value) FROM log WHERE id = until), 0) FROM past").pastOf(q)
	b.ordered(q).add(") AS few) AS page LEFT JOIN log l ON l.id = page.id LEFT JOIN past p ON p.first_id = page.first_id LEFT JOIN log AS next ON next.id = p.until WHERE before < " + b.arg(q.Bytes))
	return b.add(" ORDER BY page.key")
}

// pastOf adds the condition for the blocks that were current at the revision of q.
func (b *statement) pastOf(q Query) *statement {
	return b.where(q).add(" AND until > " + b.arg(q.Revision) + " AND first_id <= " + b.arg(q.Revision))
}

// countPast is Count for pageOfPast. It counts without the terms.
func (s *Store) countPast(ctx context.Context, q Query) (n int64, err error) {
	q.Terms = nil
	b := s.statement().of("listWithCount", q.Resource).add("SELECT (").count(q)
	b.add(") + (SELECT count(*) FROM past").pastOf(q).add(")")
	if err = s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&n) }); err == nil {
		_, err = s.pastKept(ctx, q)
	}
	return n, err
}

// KeepsHistory reports whether states can be read after they were compacted.
func (s *Store) KeepsHistory() bool { return s.opts.History > 0 }

// past reports whether err is of a revision that only history may have, and is to be read from there.
func (s *Store) past(q Query, err error) bool {
	return s.KeepsHistory() && !q.Retained && q.Revision != 0 && errors.Is(err, ErrCompacted)
}
