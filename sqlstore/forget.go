package sqlstore

import (
	"context"
	"math"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// forgetBatch is how many blocks of history are removed at once, and forgetInterval how often it is looked for old ones if no versions are
// moved there.
const (
	forgetBatch    = 500
	forgetInterval = 10 * time.Minute
)

// packer returns what makes history of versions that leave the log, nil if none is kept.
func (o *Options) packer() dialect.Packer {
	if o.History <= 0 {
		return nil
	}
	return history.Pack(o.HistoryThin)
}

// forget removes the oldest history: what was replaced longer ago than Options.History, and what exceeds HistoryBytes. A block is removed
// as a whole, with its last version, so more than that may be kept for a while.
func (s *Store) forget(ctx context.Context) error {
	var bytes, old int64
	b := s.statement().setApart()
	before := s.opts.Now().Add(-s.opts.History).UnixMilli()
	b.add("SELECT coalesce(sum(bytes), 0), coalesce(max(CASE WHEN until_at <= " + b.arg(before) + " THEN until END), 0) FROM past")
	err := s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&bytes, &old) })
	if err == nil && s.opts.History <= 0 {
		old = math.MaxInt64
	} else if limit := s.opts.HistoryBytes; err == nil && limit > 0 && bytes > limit {
		b := s.statement().setApart()
		b.add("SELECT max(until) FROM (SELECT until, sum(bytes) OVER (ORDER BY until DESC) AS size FROM past) AS newest WHERE size > " + b.arg(limit))
		err = s.run(ctx, b, func(row dialect.Row) error {
			var surplus int64
			err := row.Scan(&surplus)
			old = max(old, surplus)
			return err
		})
	}
	if err == nil && old > 0 && bytes > 0 {
		err = s.repeat(ctx, s.opts.Timeout, func(ctx context.Context) (bool, error) {
			n, err := s.engine.Forget(ctx, old, forgetBatch)
			return n > 0, err
		})
	}
	if err != nil {
		return err
	}
	return s.measureHistory(ctx)
}

// HistoryStats describes the history of a log.
type HistoryStats struct {
	// From is the revision from which on all versions are kept, and Since when it was written; the zero time if all are kept.
	From  int64
	Since time.Time
	// Bytes is roughly how much space the packed versions take, in so many blocks.
	Bytes, Blocks int64
}

func (s *Store) measureHistory(ctx context.Context) error {
	var h HistoryStats
	var since int64
	b := s.statement().setApart().add("SELECT " + history.From + ", history_at, (SELECT coalesce(sum(bytes), 0) FROM past), (SELECT count(*) FROM past) FROM counter")
	err := s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&h.From, &since, &h.Bytes, &h.Blocks) })
	if err == nil {
		if since > 0 {
			h.Since = time.UnixMilli(since)
		}
		s.size.update(func() { s.size.stats.History = h })
	}
	return err
}
