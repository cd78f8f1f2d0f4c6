package sqlstore

import (
	"context"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// Changes calls yield with the changes that q selects, in order of their revisions. It returns an error from yield, which ends it,
// unchanged.
func (s *Store) Changes(ctx context.Context, q history.Query, yield func(*history.Change) error) error {
	return history.Changes(ctx, settled{s.engine, s}, q, yield)
}

// Live calls yield with the changes that made what exists now; see history.Live.
func (s *Store) Live(ctx context.Context, q history.Query, owned bool, yield func(*history.Change) error) error {
	return history.Live(ctx, settled{s.engine, s}, q, owned, yield)
}

// settled reads a log that has the held rows, with a time limit for each read.
type settled struct {
	dialect.Reader
	store *Store
}

func (r settled) Query(ctx context.Context, statement string, args []any, row func(dialect.Row) error) error {
	b := r.store.statement().add(statement)
	b.args = args
	return r.store.run(ctx, b, row)
}

// HistoryFrom returns the revision from which on all changes are kept. It also reports whether a revision was lost: the log has jumped over it,
// since a state that is gone can have had it.
func (s *Store) HistoryFrom(ctx context.Context, revision int64) (from int64, lost bool, err error) {
	b := s.statement().setApart().add("SELECT " + history.From + ", " + dialect.WasLost + " FROM counter")
	b.args = []any{revision, revision}
	err = s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&from, &lost) })
	return from, lost || s.engine.Skipped().Has(revision), err
}

// HistorySince returns the revision from which on all changes are kept, and when that was.
func (s *Store) HistorySince(ctx context.Context) (w history.Written, err error) {
	b := s.statement().setApart().add("SELECT " + history.From + ", " + history.Since + " FROM counter")
	err = s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&w.Revision, &w.At) })
	return w, err
}

// RevisionAt returns the newest revision that was written at a moment or before, 0 if history does not go back so far.
func (s *Store) RevisionAt(ctx context.Context, t time.Time) (revision int64, err error) {
	revision, from, err := s.writtenBefore(ctx, t)
	if revision < from {
		revision = 0
	}
	return revision, err
}

// LastAt returns the newest revision that is known to have been written at a moment or before, 0 if none is. Others before it may be gone.
func (s *Store) LastAt(ctx context.Context, t time.Time) (revision int64, err error) {
	revision, _, err = s.writtenBefore(ctx, t)
	return revision, err
}

// writtenBefore returns LastAt, and the revision from which on all changes are kept.
func (s *Store) writtenBefore(ctx context.Context, t time.Time) (revision, from int64, err error) {
	before, _, err := history.Around(ctx, settled{s.engine, s}, t.UnixMilli())
	if err != nil {
		return 0, 0, err
	}
	b := s.statement()
	b.add("SELECT coalesce(max(id), 0), (SELECT " + history.From + " FROM counter) FROM log WHERE written_at <= " + b.arg(t.UnixMilli()))
	err = s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&revision, &from) })
	return max(revision, before.Revision), from, err
}
