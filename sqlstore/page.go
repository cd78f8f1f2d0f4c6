package sqlstore

import (
	"cmp"
	"context"

	"github.com/sqube/sqube/dialect"
)

// A page has at most PageRecords records, and ends with the one whose value brings it to PageBytes. So walking a collection takes
// the memory and the database snapshot of one page at a time, however large the collection and its objects are.
const (
	PageRecords = 500
	PageBytes   = 2 << 20
)

// Page is the first records of a Query.
type Page struct {
	// Position is the log's position in the snapshot that was read.
	dialect.Position
	// Records are in the order of keys.
	Records []*Record
	// More reports that there may be more records, after the last one and at the Revision of this page.
	More bool
}

// Page returns the first records of q, at most q.Limit. It returns ErrFuture or ErrCompacted, with the position, if q.Revision
// can't be read. The records come from memory if the collection is there; see cached.
func (s *Store) Page(ctx context.Context, q Query) (Page, error) {
	if q.Limit <= 0 || q.Limit > PageRecords {
		q.Limit = PageRecords
	}
	q.Bytes = cmp.Or(q.Bytes, PageBytes)
	if t := TransactionFrom(ctx); t != nil && t.reads(q) {
		return t.page(ctx, q)
	}
	if q.Retained && q.Revision < s.outlived.Load() {
		return Page{}, ErrCompacted
	}
	page, err := s.pageKept(ctx, q)
	if s.past(q, err) {
		return s.pageOfPast(ctx, q)
	}
	return page, err
}

// pageKept is Page at a revision that is not compacted.
func (s *Store) pageKept(ctx context.Context, q Query) (Page, error) {
	snap, at, err := s.cached(ctx, q)
	if err != nil {
		return Page{Position: at}, err
	}
	if snap != nil {
		page := s.cache.page(snap, q, at)
		if !snap.bare || q.WithoutValues {
			return page, nil
		}
		if complete, err := s.addValues(ctx, s.statement().of("list", q.Resource), page.Records); complete || err != nil {
			return page, err
		}
	}
	return s.pageOfLog(ctx, q)
}

// page returns the first records of q in a snapshot.
func (c *cache) page(snap *snapshot, q Query, at dialect.Position) Page {
	page, size := Page{Position: at}, 0
	c.walk(snap, q, func(r *Record) bool {
		page.Records = append(page.Records, r)
		size += r.length()
		page.More = len(page.Records) == q.Limit || size >= q.Bytes
		return !page.More
	})
	return page
}

// addValues replaces bare records with whole ones, with the statement b, which is empty. It returns false if some are no longer in the database: they were replaced and
// compacted.
func (s *Store) addValues(ctx context.Context, b *statement, records []*Record) (complete bool, err error) {
	left := make([]int, 0, len(records)) // to be read from the database
	for i, r := range records {
		if records[i] = r.unpack(); records[i].left > 0 {
			left = append(left, i)
		}
	}
	if len(left) == 0 {
		return true, nil
	}
	byID := make(map[int64]int, len(left))
	b.add("SELECT id, value FROM log WHERE id IN (")
	for n, i := range left {
		if n > 0 {
			b.add(", ")
		}
		byID[records[i].Revision] = i
		b.add(b.arg(records[i].Revision))
	}
	// Rounded up to a power of two, since engines cache a plan for each statement.
	for n := len(left); n&(n-1) != 0; n++ {
		b.add(", " + b.arg(records[left[0]].Revision))
	}
	found := 0
	err = s.run(ctx, b.add(")"), func(row dialect.Row) error {
		var id int64
		var value []byte
		if err := row.Scan(&id, &value); err != nil {
			return err
		}
		if i, ok := byID[id]; ok {
			records[i] = records[i].with(value)
			found++
		}
		return nil
	})
	return found == len(left), err
}

// pageOfLog is Page from the database.
//
// Every read is one statement and sees one snapshot, whose position comes with each row. If there are no rows, another statement
// reads the position, provided that there are still none.
func (s *Store) pageOfLog(ctx context.Context, q Query) (Page, error) {
	for {
		page, err := s.page(ctx, q)
		if err != nil {
			return page, err
		}
		if len(page.Records) > 0 {
			s.published(ctx, cmp.Or(q.Revision, page.Revision))
			return page, nil
		}
		one := q
		one.Limit = 1
		b := s.statement().of("list", q.Resource).add("SELECT revision, compacted, NOT EXISTS (").rows(one, "id, key").add(") FROM counter")
		var none bool
		at := &page.Position
		if err := s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&at.Revision, &at.Compacted, &none) }); err != nil {
			return page, err
		}
		if err := s.readableAt(*at, q); err != nil {
			return page, err
		}
		if none {
			s.published(ctx, cmp.Or(q.Revision, at.Revision))
			return page, nil
		}
	}
}

func (s *Store) page(ctx context.Context, q Query) (page Page, err error) {
	at, size := &page.Position, 0
	err = s.run(ctx, s.statement().of("list", q.Resource).page(q), func(row dialect.Row) error {
		r := &Record{}
		if err := row.Scan(&at.Revision, &at.Compacted, &r.Revision, &r.Key, &r.Labels, &r.Fields, &r.Value); err != nil {
			return err
		}
		if page.Records == nil {
			if err := s.readableAt(*at, q); err != nil {
				return err
			}
		}
		page.Records = append(page.Records, r)
		if size += len(r.Value); size >= q.Bytes {
			return errEnough
		}
		return nil
	})
	if err != nil {
		return Page{Position: page.Position}, err
	}
	page.More = size >= q.Bytes || len(page.Records) == q.Limit
	return page, nil
}
