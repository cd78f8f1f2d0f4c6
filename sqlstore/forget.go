package sqlstore

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/sqube/sqube/dialect"
	"github.com/sqube/sqube/sqlstore/history"
)

// forgetBatch is how many blocks of history are removed at once, and forgetInterval how often to look for old ones if no versions are moved
// there.
const (
	forgetBatch    = 500
	forgetInterval = 10 * time.Minute
)

// compactBatch removes or moves a batch of versions. If that fills the disk, history gives way, all of it if need be.
func (s *Store) compactBatch(ctx context.Context, upTo int64) (n int, err error) {
	if s.opts.History <= 0 {
		return s.engine.Compact(ctx, upTo, compactBatch, nil)
	}
	pack, grown := history.Pack(s.opts.HistoryThin), int64(0)
	n, err = s.engine.Compact(ctx, upTo, compactBatch, func(rows []*dialect.Replaced, last []*dialect.Block) ([]*dialect.Block, error) {
		blocks, err := pack(rows, last)
		for _, b := range blocks {
			grown += b.Bytes()
		}
		return blocks, err
	})
	if errors.Is(err, dialect.ErrFull) {
		if n, err = s.engine.Forget(ctx, math.MaxInt64, forgetBatch); err == nil && n == 0 {
			n, err = s.engine.Compact(ctx, upTo, compactBatch, nil)
		}
		return n, err
	}
	if s.grown += grown; err == nil && s.opts.HistoryBytes > 0 && s.grown > s.opts.HistoryBytes/4 {
		err = s.forget(ctx)
	}
	return n, err
}

// forget removes the oldest history: what was replaced longer ago than Options.History, and what exceeds HistoryBytes. A block is removed
// as a whole, with its last version, so more than that may be kept for a while.
func (s *Store) forget(ctx context.Context) error {
	s.grown = 0
	h, old, err := s.measureHistory(ctx)
	if err == nil && s.opts.History <= 0 {
		old = math.MaxInt64
	} else if limit := s.limit(h.Bytes); err == nil && limit > 0 && h.Bytes > limit {
		b := s.statement().setApart()
		b.add("SELECT max(until) FROM (SELECT until, sum(bytes) OVER (ORDER BY until DESC) AS size FROM past) AS newest WHERE size > " + b.arg(limit))
		err = s.run(ctx, b, func(row dialect.Row) error {
			var surplus int64
			err := row.Scan(&surplus)
			old = max(old, surplus)
			return err
		})
	}
	if err != nil || old == 0 || h.Bytes == 0 {
		return err
	}
	err = s.repeat(ctx, s.opts.Timeout, func(ctx context.Context) (bool, error) {
		n, err := s.engine.Forget(ctx, old, forgetBatch)
		return n > 0, err
	})
	if err == nil {
		_, _, err = s.measureHistory(ctx)
	}
	return err
}

// limit returns how many bytes of history may remain, given how many there are; 0 for no limit. If the disk is full, objects come first.
func (s *Store) limit(bytes int64) int64 {
	if s.full.Load() {
		return max(1, bytes/2)
	}
	return s.opts.HistoryBytes
}

// HistoryStats describes the history of a log.
type HistoryStats struct {
	// From is the revision from which on all versions are kept.
	From int64
	// Bytes is roughly how much space the packed versions take, in so many blocks.
	Bytes, Blocks int64
}

// measureHistory measures history for Stats. It also returns the revision up to which it is older than Options.History.
func (s *Store) measureHistory(ctx context.Context) (h HistoryStats, old int64, err error) {
	b := s.statement().setApart()
	before := s.opts.Now().Add(-s.opts.History).UnixMilli()
	b.add("SELECT (SELECT " + history.From + " FROM counter), count(*), coalesce(sum(bytes), 0), coalesce(max(CASE WHEN until_at <= " + b.arg(before) + " THEN until END), 0) FROM past")
	err = s.run(ctx, b, func(row dialect.Row) error { return row.Scan(&h.From, &h.Blocks, &h.Bytes, &old) })
	if err == nil {
		s.size.update(func() { s.size.stats.History = h })
	}
	return h, old, err
}
