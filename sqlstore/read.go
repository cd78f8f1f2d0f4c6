package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqube/sqube/dialect"
)

var (
	// ErrCompacted is returned for a revision that is no longer kept.
	ErrCompacted = errors.New("the revision has been compacted")
	// ErrFuture is returned for a revision that does not exist yet.
	ErrFuture = errors.New("the revision is in the future")
)

// Query selects the objects of Page and Count.
type Query struct {
	Resource Resource
	// Prefix limits the keys; "" or ending in "/".
	Prefix string
	// Exactly limits the keys to one.
	Exactly *string
	// From limits the keys to those at or after it, After to those after it.
	From, After string
	// Revision is the state to read, 0 for the newest.
	Revision int64
	// Retained fails with ErrCompacted at a revision that is older than the retention, even if the log or history still has it.
	Retained bool
	// Limit is the maximum number of records, 0 for no limit.
	Limit int
	// Bytes ends a page with the record whose value reaches that total; 0 means PageBytes.
	Bytes int
	// Terms narrow the query; see Term.
	Terms []Term
	// WithoutValues leaves the values of the records out.
	WithoutValues bool
}

// errEnough is returned by the row function of run to read no more rows.
var errEnough = errors.New("enough has been read")

// run runs a statement on a log that has the held rows, unless it does not matter.
func (s *Store) run(ctx context.Context, b *statement, row func(dialect.Row) error) error {
	if !b.apart {
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
	bounded, cancel := s.bounded(ctx)
	defer cancel()
	bounded, span := s.statementSpan(bounded, b)
	began := time.Now()
	err := s.engine.Query(bounded, b.text.String(), b.args, row)
	if errors.Is(err, errEnough) {
		err = nil
	}
	endSpan(span, err)
	if b.operation != "" {
		s.opts.OnRequest(b.operation, b.resource, began, err)
	}
	if ctx.Err() == nil {
		s.failures.contact(began, err)
		s.failures.read(err)
	}
	return err
}

// Position returns the current position of the log, including held rows.
func (s *Store) Position(ctx context.Context) (at dialect.Position, err error) {
	if s.held.count.Load() == 0 {
		return s.positionOfLog(ctx)
	}
	if s.ambiguous.Load() != s.resolved.Load() {
		at, err := s.positionOfLog(ctx)
		at.Revision = max(at.Revision, s.hub.at())
		return at, err
	}
	return dialect.Position{Revision: s.hub.at(), Compacted: s.compacted.Load()}, nil
}

// positionOfLog returns the current position of the log in the database.
func (s *Store) positionOfLog(ctx context.Context) (at dialect.Position, err error) {
	err = s.run(ctx, s.statement().setApart().add("SELECT revision, compacted FROM counter"), func(row dialect.Row) error {
		return row.Scan(&at.Revision, &at.Compacted)
	})
	if err == nil {
		err = s.readable(at, 0)
	}
	return at, err
}

// Get returns the live version of the object at key, nil if there is none, and the log's position.
func (s *Store) Get(ctx context.Context, resource Resource, key string) (*Record, dialect.Position, error) {
	if t := TransactionFrom(ctx); t != nil {
		return t.get(ctx, resource, key)
	}
	snap, at, err := s.cached(ctx, Query{Resource: resource, Exactly: &key})
	if err != nil {
		return nil, at, err
	}
	if snap != nil {
		found, _ := snap.rows.Get(&Record{Key: key})
		if found == nil || !snap.bare {
			return found, at, nil
		}
		one := []*Record{found}
		if complete, err := s.addValues(ctx, s.statement().of("get", resource), one); complete || err != nil {
			return one[0], at, err
		}
	}
	return s.get(ctx, resource, key)
}

// get is Get from the database.
func (s *Store) get(ctx context.Context, resource Resource, key string) (*Record, dialect.Position, error) {
	b := s.statement().of("get", resource).add("SELECT counter.revision, counter.compacted, l.id, l.labels, l.fields, l.value FROM counter LEFT JOIN log l ON l.replaced_by IS NULL")
	b.add(" AND l.api_group = " + b.arg(resource.Group) + " AND l.resource = " + b.arg(resource.Name) + " AND l.key = " + b.arg(key))
	var at dialect.Position
	var found *Record
	err := s.run(ctx, b, func(row dialect.Row) error {
		var id *int64
		var labels, fields *string
		r := Record{Key: key}
		if err := row.Scan(&at.Revision, &at.Compacted, &id, &labels, &fields, &r.Value); err != nil {
			return err
		}
		if id != nil {
			r.Revision, r.Labels, r.Fields = *id, *labels, *fields
			found = &r
		}
		return nil
	})
	if err == nil {
		err = s.readable(at, 0)
	}
	if err == nil {
		s.published(ctx, at.Revision)
	}
	return found, at, err
}

// Count returns the number of records of q, up to its Limit. It returns ErrFuture or ErrCompacted if q.Revision can't be read.
func (s *Store) Count(ctx context.Context, q Query) (n int64, err error) {
	if t := TransactionFrom(ctx); t != nil && t.reads(q) {
		return t.count(ctx, q)
	}
	if n, err = s.countKept(ctx, q); s.past(q, err) {
		return s.countPast(ctx, q)
	}
	return n, err
}

// countKept is Count at a revision that is not compacted.
func (s *Store) countKept(ctx context.Context, q Query) (n int64, err error) {
	snap, _, err := s.cached(ctx, q)
	if err != nil {
		return 0, err
	}
	if snap != nil {
		return s.cache.count(snap, q), nil
	}
	var at dialect.Position
	b := s.statement().of("listWithCount", q.Resource).add("SELECT revision, compacted, (").count(q).add(") FROM counter")
	err = s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&at.Revision, &at.Compacted, &n) })
	if err == nil {
		err = s.readableAt(at, q)
	}
	return n, err
}

// Size returns the number of objects of a resource and the total length of their values in bytes.
func (s *Store) Size(ctx context.Context, resource Resource) (objects, bytes int64, err error) {
	size, known, position := s.cache.sizeOf(resource)
	if known {
		return size.objects, size.bytes, nil
	}
	b := s.statement().setApart().of("listWithCount", resource).add("SELECT count(*), coalesce(sum(octet_length(value)), 0) FROM log WHERE replaced_by IS NULL")
	b.add(" AND api_group = " + b.arg(resource.Group) + " AND resource = " + b.arg(resource.Name))
	err = s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&size.objects, &size.bytes) })
	if err == nil {
		s.cache.measured(resource, size, position)
	}
	return size.objects, size.bytes, err
}

var errNoCounter = fmt.Errorf("reading the revision counter: its row is missing: %w", dialect.ErrCorrupt)

// readable returns ErrFuture or ErrCompacted if a log at that position can't be read at revision, 0 for the newest. It fails if
// no position was read.
func (s *Store) readable(at dialect.Position, revision int64) error {
	switch {
	case at.Revision == 0:
		return errNoCounter
	case revision > at.Revision:
		return ErrFuture
	case revision != 0 && revision < at.Compacted, s.engine.Skipped().Has(revision):
		return ErrCompacted
	}
	return nil
}

// One read of the log ends after maxChanges rows or maxChangeBytes of values. It covers at most maxSpan revisions, so that it is
// short whatever plan the database chooses, even if nearly all of them belong to other resources.
const (
	maxChanges     = 500
	maxChangeBytes = 16 << 20
	maxSpan        = 5000
)

// changes returns the changes of the revisions after from and up to to, oldest first, of one resource or (nil) of all. read is
// the revision up to which they are complete: to, or an earlier one if there is too much to read at once.
func (s *Store) changes(ctx context.Context, from, to int64, resource *Resource, maxRows, maxBytes int) (changes []*Change, read int64, err error) {
	from, to = s.engine.Skipped().Before(from, to)
	to = min(to, from+maxSpan)
	b := s.statement().changes(from, to, resource, maxRows, maxBytes)
	bytes := 0
	err = s.run(ctx, b, func(row dialect.Row) error {
		c := &Change{}
		var operation string
		var previous *int64
		var previousLabels, previousFields *string
		var previousValue []byte
		if err := row.Scan(&c.Record.Revision, &operation, &c.Resource.Group, &c.Resource.Name, &c.Record.Key, &c.Record.Labels, &c.Record.Fields, &c.Record.Value,
			&previous, &previousLabels, &previousFields, &previousValue); err != nil {
			return err
		}
		bytes += len(c.Record.Value) + len(previousValue)
		c.Operation = dialect.Operation(operation)
		if c.Operation == dialect.Delete {
			c.Record = Record{Revision: c.Record.Revision, Key: c.Record.Key}
		}
		if previous != nil {
			c.Previous = &Record{Revision: *previous, Key: c.Record.Key, Labels: *previousLabels, Fields: *previousFields, Value: previousValue}
		}
		changes = append(changes, c)
		if bytes >= maxBytes {
			return errEnough
		}
		return nil
	})
	if err == nil && (bytes >= maxBytes || len(changes) == maxRows) {
		return changes, changes[len(changes)-1].Record.Revision, nil
	}
	return changes, to, err
}
